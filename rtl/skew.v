// Delays lane i by i steps (REVERSE = 0) or by LANES - 1 - i steps (REVERSE = 1); a skew by one followed by a
// skew by the other delays every lane by LANES - 1.
module skew #(
    parameter LANES   = 4,
    parameter WIDTH   = 8,
    parameter REVERSE = 0
) (
    input  wire                   clk,
    input  wire                   rst,
    input  wire                   step,
    input  wire [LANES*WIDTH-1:0] in,
    output wire [LANES*WIDTH-1:0] out
);
    genvar i;
    generate
        for (i = 0; i < LANES; i = i + 1) begin : g_lane
            delay_line #(.WIDTH(WIDTH), .DELAY(REVERSE != 0 ? LANES - 1 - i : i)) line (
                .clk(clk), .rst(rst), .step(step),
                .in(in[i*WIDTH +: WIDTH]), .out(out[i*WIDTH +: WIDTH])
            );
        end
    endgenerate
endmodule
