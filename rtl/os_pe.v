// Output-stationary cell.  Activations move right and weights down, one cell a step, while the sum stays.
// `first` starts a new sum, `last` copies the finished one to the drain register, both in the step of the operand
// that carries them, so that the next tile may follow at once while the column shifts its results down and out.
module os_pe #(
    parameter DATA_W = 8,
    parameter ACC_W  = 32,
    parameter FLOAT  = 0
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              step,
    input  wire [2:0]        mark_in,   // {valid, first, last}
    input  wire [DATA_W-1:0] a_in,
    input  wire [DATA_W-1:0] w_in,
    input  wire              drain_in,
    input  wire [ACC_W-1:0]  y_in,
    output reg  [2:0]        mark_out,
    output reg  [DATA_W-1:0] a_out,
    output reg  [DATA_W-1:0] w_out,
    output reg               drain_out,
    output reg  [ACC_W-1:0]  y_out
);
    reg  [ACC_W-1:0] held;
    wire [ACC_W-1:0] sum;
    wire valid, first, last;

    assign {valid, first, last} = mark_in;

    mac #(.DATA_W(DATA_W), .ACC_W(ACC_W), .FLOAT(FLOAT)) unit (
        .a(a_in), .w(w_in), .p(first ? {ACC_W{1'b0}} : held), .y(sum)
    );

    always @(posedge clk)
        if (rst) begin
            mark_out  <= 3'b0;
            drain_out <= 1'b0;
            a_out     <= {DATA_W{1'b0}};
            w_out     <= {DATA_W{1'b0}};
            held      <= {ACC_W{1'b0}};
            y_out     <= {ACC_W{1'b0}};
        end else if (step) begin
            mark_out  <= mark_in;
            drain_out <= drain_in;
            a_out     <= a_in;
            w_out     <= w_in;
            if (valid) held <= sum;
            if (valid && last) y_out <= sum;
            else if (drain_in) y_out <= y_in;
        end
endmodule
