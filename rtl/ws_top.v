// C[m, n] = A[m, k] x B[k, n] on a weight-stationary array, all operands and results as streams.
// Order of tiles: blocks of DEPTH rows of C, then COLS columns, then ROWS of k.  For each tile
//   weights      one word a row of B, bottom row of the tile first, COLS lanes, tlast on the tile's last word;
//   activations  one word a row of A, top row first, ROWS lanes of k, tlast on the tile's last word;
//   results      one word a row of C, COLS lanes, tlast on the last row of the block.
// Lanes beyond the edge of a matrix are ignored on the way in and zero on the way out.
// HIDE = 1 loads the next tile's weights while the current tile streams; HIDE = 0 does one after the other.
module ws_top #(
    parameter ROWS    = 4,
    parameter COLS    = 4,
    parameter DATA_W  = 8,
    parameter ACC_W   = 32,
    parameter FLOAT   = 0,
    parameter DEPTH   = 64,
    parameter HIDE    = 1,
    parameter DIM_W   = 16,
    parameter COUNT_W = 32
) (
    input  wire                   clk,
    input  wire                   rst,
    input  wire                   start,          // taken when not busy
    input  wire [DIM_W-1:0]       size_m,
    input  wire [DIM_W-1:0]       size_n,
    input  wire [DIM_W-1:0]       size_k,
    output reg                    busy,
    output reg                    error_size,     // a start with a size of zero was refused
    output reg                    error_last,     // a tlast came in the wrong place; sticky until rst
    input  wire                   s_weights_tvalid,
    output wire                   s_weights_tready,
    input  wire [COLS*DATA_W-1:0] s_weights_tdata,
    input  wire                   s_weights_tlast,
    input  wire                   s_activations_tvalid,
    output wire                   s_activations_tready,
    input  wire [ROWS*DATA_W-1:0] s_activations_tdata,
    input  wire                   s_activations_tlast,
    output wire                   m_results_tvalid,
    input  wire                   m_results_tready,
    output wire [COLS*ACC_W-1:0]  m_results_tdata,
    output wire                   m_results_tlast,
    input  wire                   clear_counters,
    output wire [2:0]             phase,
    output wire [COUNT_W-1:0]     cycles_idle,
    output wire [COUNT_W-1:0]     cycles_preload,
    output wire [COUNT_W-1:0]     cycles_fill,
    output wire [COUNT_W-1:0]     cycles_stream,
    output wire [COUNT_W-1:0]     cycles_drain,
    output wire [COUNT_W-1:0]     cycles_stall,
    output wire [COUNT_W-1:0]     cycles_total
);
    localparam [DIM_W-1:0] ZERO = {DIM_W{1'b0}};

    reg  [DIM_W-1:0] m, n, k;
    wire             begin_run, sizes_good, finished;
    assign sizes_good = size_m != ZERO && size_n != ZERO && size_k != ZERO;
    assign begin_run  = start && !busy && sizes_good;

    // The whole array moves together, and only a result that nobody takes can hold it.
    wire step, result_valid, result_last, result_ready;
    wire [COLS*ACC_W-1:0] result;
    assign step = !result_valid || result_ready;

    wire w_valid, w_ready, w_last, a_valid, a_ready, a_last;
    wire [COLS*DATA_W-1:0] w_word;
    wire [ROWS*DATA_W-1:0] a_word;
    skid_buffer #(.WIDTH(COLS*DATA_W + 1)) weights_skid (
        .clk(clk), .rst(rst), .s_valid(s_weights_tvalid), .s_ready(s_weights_tready),
        .s_data({s_weights_tlast, s_weights_tdata}), .m_valid(w_valid), .m_ready(w_ready), .m_data({w_last, w_word})
    );
    skid_buffer #(.WIDTH(ROWS*DATA_W + 1)) activations_skid (
        .clk(clk), .rst(rst), .s_valid(s_activations_tvalid), .s_ready(s_activations_tready),
        .s_data({s_activations_tlast, s_activations_tdata}),
        .m_valid(a_valid), .m_ready(a_ready), .m_data({a_last, a_word})
    );
    skid_buffer #(.WIDTH(COLS*ACC_W + 1)) results_skid (
        .clk(clk), .rst(rst), .s_valid(result_valid), .s_ready(result_ready), .s_data({result_last, result}),
        .m_valid(m_results_tvalid), .m_ready(m_results_tready), .m_data({m_results_tlast, m_results_tdata})
    );

    wire [ROWS-1:0]  load;
    wire [DIM_W-1:0] w_lanes, a_lanes;
    wire w_end, load_zero, loading, row_valid, row_first, row_last, lost, gap;
    ws_sequencer #(.ROWS(ROWS), .COLS(COLS), .M_TILE(DEPTH), .HIDE(HIDE), .DIM_W(DIM_W)) sequencer (
        .clk(clk), .rst(rst), .start(begin_run), .step(step),
        .m(begin_run ? size_m : m), .n(begin_run ? size_n : n), .k(begin_run ? size_k : k),
        .weights_valid(w_valid), .weights_ready(w_ready), .weights_last(w_end), .weights_columns(w_lanes),
        .load(load), .load_zero(load_zero),
        .activations_valid(a_valid), .activations_ready(a_ready),
        .row_valid(row_valid), .row_first(row_first), .row_last(row_last), .row_lanes(a_lanes),
        .loading(loading), .lost(lost), .gap(gap)
    );

    wire [COLS*DATA_W-1:0] w_masked;
    wire [ROWS*DATA_W-1:0] a_masked;
    lane_mask #(.LANES(COLS), .WIDTH(DATA_W), .DIM_W(DIM_W)) mask_w (
        .count(load_zero ? ZERO : w_lanes), .in(w_word), .out(w_masked)
    );
    lane_mask #(.LANES(ROWS), .WIDTH(DATA_W), .DIM_W(DIM_W)) mask_a (
        .count(row_valid ? a_lanes : ZERO), .in(a_word), .out(a_masked)
    );

    wire [COLS*ACC_W-1:0] y, y_masked;
    ws_array #(.ROWS(ROWS), .COLS(COLS), .DATA_W(DATA_W), .ACC_W(ACC_W), .FLOAT(FLOAT)) array (
        .clk(clk), .rst(rst), .step(step), .first(row_valid && row_first), .a(a_masked),
        .load(load), .w(w_masked), .y(y)
    );

    // That a row is there, and the last of its tile, travels beside it through the array; which tile it is, a third
    // walk over the tiles knows.
    wire y_valid, y_last_row, y_first_k, y_last_k, y_last_tile;
    delay_line #(.WIDTH(2), .DELAY(ROWS + COLS - 1)) tags (
        .clk(clk), .rst(rst), .step(step), .in({row_valid, row_last}), .out({y_valid, y_last_row})
    );
    wire             result_active;
    wire [DIM_W-1:0] result_m_size, result_k_size, y_lanes;
    tile_walk #(.M_TILE(DEPTH), .N_TILE(COLS), .K_TILE(ROWS), .DIM_W(DIM_W)) result_walk (
        .clk(clk), .rst(rst), .start(begin_run), .advance(step && y_valid && y_last_row),
        .m(begin_run ? size_m : m), .n(begin_run ? size_n : n), .k(begin_run ? size_k : k),
        .active(result_active), .m_size(result_m_size), .n_size(y_lanes), .k_size(result_k_size),
        .first_k(y_first_k), .last_k(y_last_k), .last_tile(y_last_tile)
    );
    lane_mask #(.LANES(COLS), .WIDTH(ACC_W), .DIM_W(DIM_W)) mask_y (.count(y_lanes), .in(y), .out(y_masked));

    accumulator_bank #(.COLS(COLS), .ACC_W(ACC_W), .DEPTH(DEPTH), .FLOAT(FLOAT)) accumulators (
        .clk(clk), .rst(rst), .step(step), .valid(y_valid), .first_k(y_first_k), .last_k(y_last_k),
        .last_row(y_last_row), .y(y_masked), .result_valid(result_valid), .result_last(result_last), .result(result)
    );

    assign finished = step && y_valid && y_last_row && y_last_tile;
    always @(posedge clk)
        if (rst) begin
            busy       <= 1'b0;
            error_size <= 1'b0;
            error_last <= 1'b0;
            m          <= ZERO;
            n          <= ZERO;
            k          <= ZERO;
        end else begin
            if (begin_run) begin
                busy <= 1'b1;
                m    <= size_m;
                n    <= size_n;
                k    <= size_k;
            end else if (finished) busy <= 1'b0;
            if (start && !busy && !sizes_good) error_size <= 1'b1;
            if ((w_valid && w_ready && w_last != w_end) || (row_valid && a_last != row_last)) error_last <= 1'b1;
        end

    phase_counters #(.LATENCY(ROWS - 1), .COUNT_W(COUNT_W), .GAP_PRELOAD(1)) counters (
        .clk(clk), .rst(rst), .clear(clear_counters), .begin_run(begin_run), .busy(busy), .step(step),
        .preloading(loading), .issue_valid(row_valid), .issue_lost(lost), .issue_gap(gap), .phase(phase),
        .idle(cycles_idle), .preload(cycles_preload), .fill(cycles_fill), .stream(cycles_stream),
        .drain(cycles_drain), .stall(cycles_stall), .total(cycles_total)
    );

    wire unused;
    assign unused = &{1'b0, result_active, result_m_size, result_k_size};
endmodule
