// fp32 + fp32, combinational, round to nearest even, subnormals kept; every NaN result is 0x7fc00000.
module float32_add (
    input  wire [31:0] x,
    input  wire [31:0] y,
    output wire [31:0] sum
);
    wire x_special, y_special, x_nan, y_nan;
    assign x_special = x[30:23] == 8'hff;
    assign y_special = y[30:23] == 8'hff;
    assign x_nan     = x_special && x[22:0] != 23'b0;
    assign y_nan     = y_special && y[22:0] != 23'b0;

    wire        x_tiny, y_tiny;
    wire [10:0] x_exp, y_exp;
    assign x_tiny = x[30:23] == 8'b0;
    assign y_tiny = y[30:23] == 8'b0;
    assign x_exp  = {3'b0, x[30:24], x[23] | x_tiny} - 11'd127;
    assign y_exp  = {3'b0, y[30:24], y[23] | y_tiny} - 11'd127;

    wire [31:0] finite;
    float_add adder (
        .x_sign(x[31]), .x_exp(x_exp), .x_sig({!x_tiny, x[22:0]}),
        .y_sign(y[31]), .y_exp(y_exp), .y_sig({!y_tiny, y[22:0]}),
        .sum(finite)
    );

    wire nan;
    assign nan = x_nan || y_nan || (x_special && y_special && x[31] != y[31]);
    assign sum = nan       ? 32'h7fc00000
               : x_special ? x
               : y_special ? y
                           : finite;
endmodule
