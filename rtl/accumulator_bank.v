// Adds up the K folds of one block of result rows.  Each valid step brings one row of partial sums: it replaces
// (first_k) or adds to the row kept at the same place; on the last fold the finished row goes to the result register
// instead of the bank.  DEPTH is the most rows that a block may have.
module accumulator_bank #(
    parameter COLS  = 4,
    parameter ACC_W = 32,
    parameter DEPTH = 64,
    parameter FLOAT = 0
) (
    input  wire                  clk,
    input  wire                  rst,
    input  wire                  step,
    input  wire                  valid,
    input  wire                  first_k,
    input  wire                  last_k,
    input  wire                  last_row,
    input  wire [COLS*ACC_W-1:0] y,
    output reg                   result_valid,
    output reg                   result_last,
    output reg  [COLS*ACC_W-1:0] result
);
    localparam ROW_W = DEPTH > 4 ? $clog2(DEPTH) : 2;

    reg  [COLS*ACC_W-1:0] bank [0:DEPTH-1];
    reg  [ROW_W-1:0]      row;
    wire [COLS*ACC_W-1:0] kept, total, settled;

    assign kept    = bank[row];
    assign settled = first_k ? y : total;

    genvar c;
    generate
        for (c = 0; c < COLS; c = c + 1) begin : g_column
            accumulate #(.ACC_W(ACC_W), .FLOAT(FLOAT)) adder (
                .x(kept[c*ACC_W +: ACC_W]), .y(y[c*ACC_W +: ACC_W]), .sum(total[c*ACC_W +: ACC_W])
            );
        end
    endgenerate

    always @(posedge clk)
        if (step && valid && !last_k) bank[row] <= settled;

    always @(posedge clk)
        if (rst) begin
            row          <= {ROW_W{1'b0}};
            result_valid <= 1'b0;
            result_last  <= 1'b0;
            result       <= {COLS*ACC_W{1'b0}};
        end else if (step) begin
            result_valid <= valid && last_k;
            result_last  <= last_row;
            result       <= settled;
            if (valid) row <= last_row ? {ROW_W{1'b0}} : row + {{(ROW_W-1){1'b0}}, 1'b1};
        end
endmodule
