// Sum of two partial results behind one port: integer (FLOAT = 0) or fp32 (FLOAT = 1).
module accumulate #(
    parameter ACC_W = 32,
    parameter FLOAT = 0
) (
    input  wire [ACC_W-1:0] x,
    input  wire [ACC_W-1:0] y,
    output wire [ACC_W-1:0] sum
);
    generate
        if (FLOAT != 0) begin : g_float
            float32_add unit (.x(x), .y(y), .sum(sum));
        end else begin : g_int
            assign sum = x + y;
        end
    endgenerate
endmodule
