// Walks over the tiles of an m x n x k product: k innermost, then n, then m.  The sizes of the current tile are at
// most M_TILE, N_TILE, K_TILE and smaller at the far edges.  m, n, k must hold still while active.
module tile_walk #(
    parameter M_TILE = 4,
    parameter N_TILE = 4,
    parameter K_TILE = 4,
    parameter DIM_W  = 16
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             start,
    input  wire             advance,
    input  wire [DIM_W-1:0] m,
    input  wire [DIM_W-1:0] n,
    input  wire [DIM_W-1:0] k,
    output reg              active,
    output wire [DIM_W-1:0] m_size,
    output wire [DIM_W-1:0] n_size,
    output wire [DIM_W-1:0] k_size,
    output wire             first_k,
    output wire             last_k,
    output wire             last_tile
);
    localparam [31:0] M_STEP = M_TILE;
    localparam [31:0] N_STEP = N_TILE;
    localparam [31:0] K_STEP = K_TILE;

    reg [DIM_W-1:0] m_left, n_left, k_left;
    wire last_m, last_n;

    assign last_m    = m_left <= M_STEP[DIM_W-1:0];
    assign last_n    = n_left <= N_STEP[DIM_W-1:0];
    assign last_k    = k_left <= K_STEP[DIM_W-1:0];
    assign first_k   = k_left == k;
    assign last_tile = last_m && last_n && last_k;
    assign m_size    = last_m ? m_left : M_STEP[DIM_W-1:0];
    assign n_size    = last_n ? n_left : N_STEP[DIM_W-1:0];
    assign k_size    = last_k ? k_left : K_STEP[DIM_W-1:0];

    always @(posedge clk)
        if (rst) begin
            active <= 1'b0;
            m_left <= {DIM_W{1'b0}};
            n_left <= {DIM_W{1'b0}};
            k_left <= {DIM_W{1'b0}};
        end else if (start) begin
            active <= 1'b1;
            m_left <= m;
            n_left <= n;
            k_left <= k;
        end else if (advance) begin
            active <= !last_tile;
            k_left <= last_k ? k : k_left - K_STEP[DIM_W-1:0];
            if (last_k) n_left <= last_n ? n : n_left - N_STEP[DIM_W-1:0];
            if (last_k && last_n) m_left <= m_left - M_STEP[DIM_W-1:0];
        end
endmodule
