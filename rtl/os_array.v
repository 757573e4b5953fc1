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

    // Links between cells; index 0 is the edge where the skews feed in.
    wire [ROWS*(COLS+1)*LANE_W-1:0] a_link;
    wire [ROWS*(COLS+1)-1:0]        drain_link;
    wire [(ROWS+1)*COLS*DATA_W-1:0] w_link;
    wire [(ROWS+1)*COLS*ACC_W-1:0]  y_link;

    skew #(.LANES(ROWS), .WIDTH(LANE_W)) skew_a (.clk(clk), .rst(rst), .step(step), .in(a_plain), .out(a_skewed));
    skew #(.LANES(COLS), .WIDTH(DATA_W)) skew_w (.clk(clk), .rst(rst), .step(step), .in(w), .out(w_skewed));
    skew #(.LANES(COLS), .WIDTH(ACC_W), .REVERSE(1)) deskew_y (
        .clk(clk), .rst(rst), .step(step), .in(y_skewed), .out(y)
    );

    assign w_link[0 +: COLS*DATA_W] = w_skewed;
    assign y_link[0 +: COLS*ACC_W]  = {COLS*ACC_W{1'b0}};
    assign y_skewed = y_link[ROWS*COLS*ACC_W +: COLS*ACC_W];

    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            assign a_plain[r*LANE_W +: LANE_W] = {mark, a[(ROWS-1-r)*DATA_W +: DATA_W]};
            assign a_link[r*(COLS+1)*LANE_W +: LANE_W] = a_skewed[r*LANE_W +: LANE_W];
            assign drain_link[r*(COLS+1)] = drain[r];
            for (c = 0; c < COLS; c = c + 1) begin : g_column
                localparam HERE = r*(COLS+1) + c;
                os_pe #(.DATA_W(DATA_W), .ACC_W(ACC_W), .FLOAT(FLOAT)) pe (
                    .clk(clk), .rst(rst), .step(step),
                    .mark_in(a_link[HERE*LANE_W + DATA_W +: 3]), .a_in(a_link[HERE*LANE_W +: DATA_W]),
                    .mark_out(a_link[(HERE+1)*LANE_W + DATA_W +: 3]), .a_out(a_link[(HERE+1)*LANE_W +: DATA_W]),
                    .w_in(w_link[(r*COLS+c)*DATA_W +: DATA_W]), .w_out(w_link[((r+1)*COLS+c)*DATA_W +: DATA_W]),
                    .drain_in(drain_link[HERE]), .drain_out(drain_link[HERE+1]),
                    .y_in(y_link[(r*COLS+c)*ACC_W +: ACC_W]), .y_out(y_link[((r+1)*COLS+c)*ACC_W +: ACC_W])
                );
            end
        end
    endgenerate

    // What leaves the last column to the right and the last row downwards, other than results, ends here.
    wire unused;
    assign unused = &{1'b0, a_link, drain_link, w_link[ROWS*COLS*DATA_W +: COLS*DATA_W]};
endmodule
