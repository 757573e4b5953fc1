// Weight-stationary cell.  Activations move right, partial sums move down, one cell a step.
// `shadow` is one link of the column's weight chain; `active` is what the cell multiplies with.  The activation
// that carries `first` opens a new tile: the cell switches to the shadow weight in that very step, so the switch
// travels with the data wave and the chain may be refilled right behind it.
module ws_pe #(
    parameter DATA_W = 8,
    parameter ACC_W  = 32,
    parameter FLOAT  = 0
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              step,
    input  wire              first_in,
    input  wire [DATA_W-1:0] a_in,
    input  wire              load_in,
    input  wire [DATA_W-1:0] w_in,
    input  wire [ACC_W-1:0]  p_in,
    output reg               first_out,
    output reg  [DATA_W-1:0] a_out,
    output reg               load_out,
    output wire [DATA_W-1:0] w_out,
    output reg  [ACC_W-1:0]  p_out
);
    reg  [DATA_W-1:0] shadow, active;
    wire [DATA_W-1:0] weight;
    wire [ACC_W-1:0]  sum;

    assign weight = first_in ? shadow : active;
    assign w_out  = shadow;

    mac #(.DATA_W(DATA_W), .ACC_W(ACC_W), .FLOAT(FLOAT)) unit (.a(a_in), .w(weight), .p(p_in), .y(sum));

    always @(posedge clk)
        if (rst) begin
            first_out <= 1'b0;
            load_out  <= 1'b0;
            a_out     <= {DATA_W{1'b0}};
            shadow    <= {DATA_W{1'b0}};
            active    <= {DATA_W{1'b0}};
            p_out     <= {ACC_W{1'b0}};
        end else if (step) begin
            first_out <= first_in;
            load_out  <= load_in;
            a_out     <= a_in;
            active    <= weight;
            p_out     <= sum;
            if (load_in) shadow <= w_in;
        end
endmodule
