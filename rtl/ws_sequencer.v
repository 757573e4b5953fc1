// Decides, step by step, which weight row and which activation row enter a weight-stationary array.
// Two walks over the same tiles run side by side: the load walk is at most one tile ahead of the stream walk.
// A tile's ROWS weight rows go in bottom row first; rows beyond the edge are filled in as zeros and take nothing
// from the port.  Loading the next tile may begin in the very step in which the current one begins to stream.
module ws_sequencer #(
    parameter ROWS   = 4,
    parameter COLS   = 4,
    parameter M_TILE = 64,
    parameter HIDE   = 1,   // 0: load a tile only when the one before has entered completely, for comparison
    parameter DIM_W  = 16
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             start,
    input  wire             step,
    input  wire [DIM_W-1:0] m,
    input  wire [DIM_W-1:0] n,
    input  wire [DIM_W-1:0] k,
    input  wire             weights_valid,
    output wire             weights_ready,
    output wire             weights_last,      // the word taken is the last of its tile
    output wire [DIM_W-1:0] weights_columns,
    output wire [ROWS-1:0]  load,              // shift enables of the weight chain
    output wire             load_zero,         // shift in zeros instead of a word
    input  wire             activations_valid,
    output wire             activations_ready,
    output wire             row_valid,         // an activation row enters
    output wire             row_first,         // first row of its tile: switch weights
    output wire             row_last,
    output wire [DIM_W-1:0] row_lanes,
    output wire             loading,
    output wire             lost,
    output wire             gap
);
    localparam [31:0] ROWS_WIDE = ROWS;
    localparam [DIM_W-1:0] ROW_COUNT = ROWS_WIDE[DIM_W-1:0];
    localparam [DIM_W-1:0] ZERO = {DIM_W{1'b0}};
    localparam [DIM_W-1:0] ONE = {{(DIM_W-1){1'b0}}, 1'b1};

    // Load walk.
    wire             load_active, load_open, load_event, load_end;
    wire [DIM_W-1:0] load_rows;
    reg  [DIM_W-1:0] load_index;
    reg              shadow_full;
    assign load_open     = load_active && (HIDE != 0 ? !shadow_full || (row_valid && row_first)
                                                     : !shadow_full && row_first);
    assign load_zero     = load_index + load_rows < ROW_COUNT;
    assign load_event    = step && load_open && (load_zero || weights_valid);
    assign load_end      = load_event && load_index == ROW_COUNT - ONE;
    assign weights_ready = step && load_open && !load_zero;
    assign weights_last  = load_index == ROW_COUNT - ONE;
    assign loading       = load_event;

    genvar r;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            localparam [31:0] INDEX = r;
            assign load[r] = load_event && load_index + ONE > INDEX[DIM_W-1:0];
        end
    endgenerate

    // Stream walk.
    wire             stream_active, row_open;
    wire [DIM_W-1:0] tile_rows;
    reg  [DIM_W-1:0] row_index;
    assign row_first         = row_index == ZERO;
    assign row_last          = row_index == tile_rows - ONE;
    assign row_open          = stream_active && (!row_first || shadow_full);
    assign activations_ready = step && row_open;
    assign row_valid         = activations_ready && activations_valid;

    // Why a step carries no row: the ports were late (lost) or the chain needs its ROWS steps (gap).
    // Weight words that were late while rows streamed are owed and come off the gap that follows.
    reg  [DIM_W-1:0] owed;
    assign gap  = stream_active && !row_open && load_event && owed == ZERO;
    assign lost = stream_active && !row_valid && !gap;

    always @(posedge clk)
        if (rst || start) begin
            load_index  <= ZERO;
            row_index   <= ZERO;
            shadow_full <= 1'b0;
            owed        <= ZERO;
        end else if (step) begin
            if (load_event) load_index <= load_end ? ZERO : load_index + ONE;
            if (load_end) shadow_full <= 1'b1;
            else if (row_valid && row_first) shadow_full <= 1'b0;
            if (row_valid) row_index <= row_last ? ZERO : row_index + ONE;
            if (load_end) owed <= ZERO;
            else if (row_valid && load_open && !load_event) owed <= owed + ONE;
            else if (stream_active && !row_open && load_event && owed != ZERO) owed <= owed - ONE;
        end

    wire [DIM_W-1:0] load_m_size, stream_n_size;
    wire [5:0]       marks;  // of folds and ends: known again where results leave
    tile_walk #(.M_TILE(M_TILE), .N_TILE(COLS), .K_TILE(ROWS), .DIM_W(DIM_W)) load_walk (
        .clk(clk), .rst(rst), .start(start), .advance(load_end), .m(m), .n(n), .k(k),
        .active(load_active), .m_size(load_m_size), .n_size(weights_columns), .k_size(load_rows),
        .first_k(marks[0]), .last_k(marks[1]), .last_tile(marks[2])
    );
    tile_walk #(.M_TILE(M_TILE), .N_TILE(COLS), .K_TILE(ROWS), .DIM_W(DIM_W)) stream_walk (
        .clk(clk), .rst(rst), .start(start), .advance(row_valid && row_last), .m(m), .n(n), .k(k),
        .active(stream_active), .m_size(tile_rows), .n_size(stream_n_size), .k_size(row_lanes),
        .first_k(marks[3]), .last_k(marks[4]), .last_tile(marks[5])
    );

    wire unused;
    assign unused = &{1'b0, load_m_size, stream_n_size, marks};
endmodule
