// Signed multiply-add, combinational: y = p + a * w, wrapping at ACC_W bits.
// ACC_W must exceed 2 * DATA_W; one product of -128 * -128 is +16384 and fits in 2 * DATA_W bits.
module mac_int #(
    parameter DATA_W = 8,
    parameter ACC_W  = 32
) (
    input  wire signed [DATA_W-1:0] a,
    input  wire signed [DATA_W-1:0] w,
    input  wire signed [ACC_W-1:0]  p,
    output wire signed [ACC_W-1:0]  y
);
    wire signed [2*DATA_W-1:0] product;

    assign product = a * w;
    assign y = p + {{(ACC_W - 2*DATA_W){product[2*DATA_W-1]}}, product};
endmodule
