// The arithmetic of one cell behind one port: y = p + a * w, integer (FLOAT = 0) or bf16 into fp32 (FLOAT = 1).
module mac #(
    parameter DATA_W = 8,
    parameter ACC_W  = 32,
    parameter FLOAT  = 0
) (
    input  wire [DATA_W-1:0] a,
    input  wire [DATA_W-1:0] w,
    input  wire [ACC_W-1:0]  p,
    output wire [ACC_W-1:0]  y
);
    generate
        if (FLOAT != 0) begin : g_float
            mac_bf16 unit (.a(a), .w(w), .p(p), .y(y));
        end else begin : g_int
            mac_int #(.DATA_W(DATA_W), .ACC_W(ACC_W)) unit (.a(a), .w(w), .p(p), .y(y));
        end
    endgenerate
endmodule
