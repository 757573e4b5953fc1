// Passes the first `count` lanes and clears the others: what lies beyond the edge of a matrix counts as zero.
module lane_mask #(
    parameter LANES = 4,
    parameter WIDTH = 8,
    parameter DIM_W = 16
) (
    input  wire [DIM_W-1:0]       count,
    input  wire [LANES*WIDTH-1:0] in,
    output wire [LANES*WIDTH-1:0] out
);
    genvar i;
    generate
        for (i = 0; i < LANES; i = i + 1) begin : g_lane
            localparam [31:0] INDEX = i;
            assign out[i*WIDTH +: WIDTH] = (INDEX[DIM_W-1:0] < count) ? in[i*WIDTH +: WIDTH] : {WIDTH{1'b0}};
        end
    endgenerate
endmodule
