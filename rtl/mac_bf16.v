// bf16 x bf16 + fp32 -> fp32, combinational and fused: the product is exact and the sum is rounded once,
// to nearest even.  Subnormals are kept on every port; every NaN result is 0x7fc00000.
module mac_bf16 (
    input  wire [15:0] a,
    input  wire [15:0] w,
    input  wire [31:0] p,
    output wire [31:0] y
);
    wire a_special, w_special, p_special, a_nan, w_nan, p_nan, a_zero, w_zero;
    assign a_special = a[14:7] == 8'hff;
    assign w_special = w[14:7] == 8'hff;
    assign p_special = p[30:23] == 8'hff;
    assign a_nan     = a_special && a[6:0] != 7'b0;
    assign w_nan     = w_special && w[6:0] != 7'b0;
    assign p_nan     = p_special && p[22:0] != 23'b0;
    assign a_zero    = a[14:0] == 15'b0;
    assign w_zero    = w[14:0] == 15'b0;

    wire        a_tiny, w_tiny, p_tiny, sign;
    wire [10:0] product_exp, p_exp;
    wire [15:0] product;
    assign a_tiny  = a[14:7] == 8'b0;
    assign w_tiny  = w[14:7] == 8'b0;
    assign p_tiny  = p[30:23] == 8'b0;
    assign sign    = a[15] ^ w[15];
    assign product = {8'b0, !a_tiny, a[6:0]} * {8'b0, !w_tiny, w[6:0]};
    // product / 2^14 * 2^(ea + ew), written as (product * 2^8) / 2^23 * 2^(ea + ew + 1)
    assign product_exp = {3'b0, a[14:8], a[7] | a_tiny} + {3'b0, w[14:8], w[7] | w_tiny} - 11'd253;
    assign p_exp       = {3'b0, p[30:24], p[23] | p_tiny} - 11'd127;

    wire [31:0] finite;
    float_add adder (
        .x_sign(sign), .x_exp(product_exp), .x_sig({product, 8'b0}),
        .y_sign(p[31]), .y_exp(p_exp), .y_sig({!p_tiny, p[22:0]}),
        .sum(finite)
    );

    wire product_special, nan;
    assign product_special = a_special || w_special;
    assign nan = a_nan || w_nan || p_nan || (a_special && w_zero) || (a_zero && w_special)
              || (product_special && p_special && sign != p[31]);
    assign y = nan             ? 32'h7fc00000
             : product_special ? {sign, 8'hff, 23'b0}
             : p_special       ? p
                               : finite;
endmodule
