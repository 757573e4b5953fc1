// ROWS x COLS output-stationary cells with their skews.  Lane i of `a` belongs to row i of the tile and enters array
// row ROWS - 1 - i, so that results leave the bottom of the array in ascending order of rows.
// drain[r] shifts the drain register of row r of column 0; column c does the same c steps later.
module os_array #(
    parameter ROWS   = 4,
    parameter COLS   = 4,
    parameter DATA_W = 8,
    parameter ACC_W  = 32,
    parameter FLOAT  = 0
) (
    input  wire                   clk,
    input  wire                   rst,
    input  wire                   step,
    input  wire [2:0]             mark,    // {valid, first, last} of the operands on a and w
    input  wire [ROWS*DATA_W-1:0] a,
    input  wire [COLS*DATA_W-1:0] w,
    input  wire [ROWS-1:0]        drain,
    output wire [COLS*ACC_W-1:0]  y
);
    localparam LANE_W = DATA_W + 3;  // an activation and its marks

    wire [ROWS*LANE_W-1:0] a_plain, a_skewed;
    wire [COLS*DATA_W-1:0] w_skewed;
    wire [COLS*ACC_W-1:0]  y_skewed;

    skew #(.LANES(ROWS), .WIDTH(LANE_W)) skew_a (.clk(clk), .rst(rst), .step(step), .in(a_plain), .out(a_skewed));
    skew #(.LANES(COLS), .WIDTH(DATA_W)) skew_w (.clk(clk), .rst(rst), .step(step), .in(w), .out(w_skewed));
    skew #(.LANES(COLS), .WIDTH(ACC_W), .REVERSE(1)) deskew_y (
        .clk(clk), .rst(rst), .step(step), .in(y_skewed), .out(y)
    );

    // Each cell's block holds the wires that it drives; its neighbours refer to them by name.
    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            assign a_plain[r*LANE_W +: LANE_W] = {mark, a[(ROWS-1-r)*DATA_W +: DATA_W]};
            for (c = 0; c < COLS; c = c + 1) begin : g_column
                wire [2:0]        mark_left, mark_here;
                wire              drain_left, drain_here;
                wire [DATA_W-1:0] a_left, a_here, w_above, w_here;
                wire [ACC_W-1:0]  y_above, y_here;

                if (c == 0) begin : g_west
                    assign {mark_left, a_left} = a_skewed[r*LANE_W +: LANE_W];
                    assign drain_left = drain[r];
                end else begin : g_inner
                    assign mark_left  = g_row[r].g_column[c-1].mark_here;
                    assign a_left     = g_row[r].g_column[c-1].a_here;
                    assign drain_left = g_row[r].g_column[c-1].drain_here;
                end
                if (r == 0) begin : g_north
                    assign w_above = w_skewed[c*DATA_W +: DATA_W];
                    assign y_above = {ACC_W{1'b0}};
                end else begin : g_below
                    assign w_above = g_row[r-1].g_column[c].w_here;
                    assign y_above = g_row[r-1].g_column[c].y_here;
                end

                os_pe #(.DATA_W(DATA_W), .ACC_W(ACC_W), .FLOAT(FLOAT)) pe (
                    .clk(clk), .rst(rst), .step(step),
                    .mark_in(mark_left), .a_in(a_left), .w_in(w_above), .drain_in(drain_left), .y_in(y_above),
                    .mark_out(mark_here), .a_out(a_here), .w_out(w_here), .drain_out(drain_here), .y_out(y_here)
                );

                if (r == ROWS - 1) begin : g_south
                    wire unused;
                    assign unused = &{1'b0, w_here};
                    assign y_skewed[c*ACC_W +: ACC_W] = y_here;
                end
                if (c == COLS - 1) begin : g_east
                    wire unused;
                    assign unused = &{1'b0, mark_here, a_here, drain_here};
                end
            end
        end
    endgenerate
endmodule
