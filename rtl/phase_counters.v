// Puts every clock cycle into exactly one phase and counts them, so that the six counters add up to `total`.
// The phase of a step is read where results begin to leave, LATENCY steps behind the point of issue:
// a token issued with each step says why it carries work (issue_valid), was lost waiting for a port (issue_lost),
// or was held back by the array itself (issue_gap).
module phase_counters #(
    parameter LATENCY     = 3,
    parameter COUNT_W     = 32,
    parameter GAP_PRELOAD = 1   // a held-back step counts as preload (1) or as drain (0)
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               clear,
    input  wire               begin_run,
    input  wire               busy,
    input  wire               step,
    input  wire               preloading,   // before the first issue: this step does useful work
    input  wire               issue_valid,
    input  wire               issue_lost,
    input  wire               issue_gap,
    output reg  [2:0]         phase,
    output reg  [COUNT_W-1:0] idle,
    output reg  [COUNT_W-1:0] preload,
    output reg  [COUNT_W-1:0] fill,
    output reg  [COUNT_W-1:0] stream,
    output reg  [COUNT_W-1:0] drain,
    output reg  [COUNT_W-1:0] stall,
    output reg  [COUNT_W-1:0] total
);
    localparam [2:0] IDLE = 3'd0, PRELOAD = 3'd1, FILL = 3'd2, STREAM = 3'd3, DRAIN = 3'd4, STALL = 3'd5;
    localparam [2:0] GAP = GAP_PRELOAD != 0 ? PRELOAD : DRAIN;
    localparam [COUNT_W-1:0] ONE = {{(COUNT_W-1){1'b0}}, 1'b1};

    wire seen_valid, seen_lost, seen_gap;
    delay_line #(.WIDTH(3), .DELAY(LATENCY)) tokens (
        .clk(clk), .rst(rst), .step(step),
        .in({issue_valid, issue_lost, issue_gap}), .out({seen_valid, seen_lost, seen_gap})
    );

    reg entered, arrived;
    always @(posedge clk)
        if (rst || begin_run) begin
            entered <= 1'b0;
            arrived <= 1'b0;
        end else if (step) begin
            entered <= entered || issue_valid;
            arrived <= arrived || seen_valid;
        end

    always @* begin
        if (!busy)                           phase = IDLE;
        else if (!step)                      phase = STALL;
        else if (!entered && !issue_valid)   phase = preloading ? PRELOAD : STALL;
        else if (!arrived && !seen_valid)    phase = FILL;
        else if (seen_valid)                 phase = STREAM;
        else if (seen_lost)                  phase = STALL;
        else if (seen_gap)                   phase = GAP;
        else                                 phase = DRAIN;
    end

    always @(posedge clk)
        if (rst || clear) begin
            idle    <= {COUNT_W{1'b0}};
            preload <= {COUNT_W{1'b0}};
            fill    <= {COUNT_W{1'b0}};
            stream  <= {COUNT_W{1'b0}};
            drain   <= {COUNT_W{1'b0}};
            stall   <= {COUNT_W{1'b0}};
            total   <= {COUNT_W{1'b0}};
        end else begin
            total <= total + ONE;
            case (phase)
                IDLE:    idle    <= idle + ONE;
                PRELOAD: preload <= preload + ONE;
                FILL:    fill    <= fill + ONE;
                STREAM:  stream  <= stream + ONE;
                DRAIN:   drain   <= drain + ONE;
                default: stall   <= stall + ONE;
            endcase
        end
endmodule
