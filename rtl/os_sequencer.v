// Decides, step by step, which pair of operand words enters an output-stationary array and when columns drain.
// The last pair of a tile waits until the drain chain is free of the tile before, which takes one step a result row.
// A second walk over the same tiles follows ROWS steps behind, where the first results reach the bottom.
module os_sequencer #(
    parameter ROWS  = 4,
    parameter COLS  = 4,
    parameter DIM_W = 16
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             start,
    input  wire             step,
    input  wire [DIM_W-1:0] m,
    input  wire [DIM_W-1:0] n,
    input  wire [DIM_W-1:0] k,
    input  wire             operands_valid,    // both ports have a word
    output wire             operands_ready,    // a pair would be taken in this step
    output wire             pair_valid,
    output wire             pair_first,
    output wire             pair_last,
    output wire [DIM_W-1:0] pair_rows,
    output wire [DIM_W-1:0] pair_columns,
    output wire [ROWS-1:0]  drain,             // shift enables of the drain chain
    output wire             draining,          // a result row stands at the bottom of column 0
    output wire             drain_last_row,
    output wire             lost,
    output wire             gap
);
    localparam [31:0] ROWS_WIDE = ROWS;
    localparam [DIM_W-1:0] ZERO = {DIM_W{1'b0}};
    localparam [DIM_W-1:0] ONE = {{(DIM_W-1){1'b0}}, 1'b1};

    wire             issue_active, blocked, drain_begin;
    wire [DIM_W-1:0] drain_rows;
    reg  [DIM_W-1:0] index, chain_busy, drain_index;

    assign pair_first     = index == ZERO;
    assign pair_last      = index == k - ONE;
    assign blocked        = pair_last && chain_busy != ZERO;
    assign operands_ready = step && issue_active && !blocked;
    assign pair_valid     = operands_ready && operands_valid;
    assign gap            = issue_active && blocked;
    assign lost           = issue_active && !blocked && !operands_valid;

    delay_line #(.WIDTH(1), .DELAY(ROWS)) wave (
        .clk(clk), .rst(rst), .step(step), .in(pair_valid && pair_last), .out(drain_begin)
    );
    assign draining       = drain_begin || drain_index != ZERO;
    assign drain_last_row = drain_index == drain_rows - ONE;

    genvar r;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            localparam [31:0] INDEX = r;
            assign drain[r] = draining
                && drain_index + ROWS_WIDE[DIM_W-1:0] < drain_rows + INDEX[DIM_W-1:0];
        end
    endgenerate

    always @(posedge clk)
        if (rst || start) begin
            index       <= ZERO;
            chain_busy  <= ZERO;
            drain_index <= ZERO;
        end else if (step) begin
            if (pair_valid) index <= pair_last ? ZERO : index + ONE;
            if (pair_valid && pair_last) chain_busy <= pair_rows - ONE;
            else if (chain_busy != ZERO) chain_busy <= chain_busy - ONE;
            if (draining) drain_index <= drain_last_row ? ZERO : drain_index + ONE;
        end

    // All of k is one fold here, so the walks see a product with k = 1.
    wire [DIM_W-1:0] issue_k_size, drain_n_size, drain_k_size;
    wire             drain_active;
    wire [5:0]       marks;  // of folds and ends: known again where results leave
    tile_walk #(.M_TILE(ROWS), .N_TILE(COLS), .K_TILE(1), .DIM_W(DIM_W)) issue_walk (
        .clk(clk), .rst(rst), .start(start), .advance(pair_valid && pair_last), .m(m), .n(n), .k(ONE),
        .active(issue_active), .m_size(pair_rows), .n_size(pair_columns), .k_size(issue_k_size),
        .first_k(marks[0]), .last_k(marks[1]), .last_tile(marks[2])
    );
    tile_walk #(.M_TILE(ROWS), .N_TILE(COLS), .K_TILE(1), .DIM_W(DIM_W)) drain_walk (
        .clk(clk), .rst(rst), .start(start), .advance(step && draining && drain_last_row), .m(m), .n(n), .k(ONE),
        .active(drain_active), .m_size(drain_rows), .n_size(drain_n_size), .k_size(drain_k_size),
        .first_k(marks[3]), .last_k(marks[4]), .last_tile(marks[5])
    );

    wire unused;
    assign unused = &{1'b0, issue_k_size, drain_n_size, drain_k_size, drain_active, marks};
endmodule
