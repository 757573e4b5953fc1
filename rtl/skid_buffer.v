// Cuts the ready path of a stream without costing a cycle: s_ready is a register, data passes through while the
// receiver is ready, and the one word that is in flight when it stops is kept.  Loses and duplicates nothing.
module skid_buffer #(
    parameter WIDTH = 8
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             s_valid,
    output wire             s_ready,
    input  wire [WIDTH-1:0] s_data,
    output wire             m_valid,
    input  wire             m_ready,
    output wire [WIDTH-1:0] m_data
);
    reg             full;
    reg [WIDTH-1:0] kept;

    assign s_ready = !full;
    assign m_valid = full || s_valid;
    assign m_data  = full ? kept : s_data;

    always @(posedge clk)
        if (rst) begin
            full <= 1'b0;
            kept <= {WIDTH{1'b0}};
        end else begin
            full <= m_valid && !m_ready;
            if (!full) kept <= s_data;
        end
endmodule
