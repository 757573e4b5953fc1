// ROWS x COLS weight-stationary cells with their skews.  Row vectors go in and come out whole:
// y is the product of the vector on a that went in ROWS + COLS - 1 steps ago.
// load[r] shifts row r of column 0's weight chain by one link; column c does the same c steps later.
module ws_array #(
    parameter ROWS   = 4,
    parameter COLS   = 4,
    parameter DATA_W = 8,
    parameter ACC_W  = 32,
    parameter FLOAT  = 0
) (
    input  wire                   clk,
    input  wire                   rst,
    input  wire                   step,
    input  wire                   first,
    input  wire [ROWS*DATA_W-1:0] a,
    input  wire [ROWS-1:0]        load,
    input  wire [COLS*DATA_W-1:0] w,
    output wire [COLS*ACC_W-1:0]  y
);
    localparam LANE_W = DATA_W + 1;  // an activation and its `first` mark

    wire [ROWS*LANE_W-1:0] a_plain, a_skewed;
    wire [COLS*DATA_W-1:0] w_skewed;
    wire [COLS*ACC_W-1:0]  y_skewed;

    // Links between cells; index 0 is the edge where the skews feed in.
    wire [ROWS*(COLS+1)*LANE_W-1:0] a_link;
    wire [ROWS*(COLS+1)-1:0]        load_link;
    wire [(ROWS+1)*COLS*DATA_W-1:0] w_link;
    wire [(ROWS+1)*COLS*ACC_W-1:0]  p_link;

    skew #(.LANES(ROWS), .WIDTH(LANE_W)) skew_a (.clk(clk), .rst(rst), .step(step), .in(a_plain), .out(a_skewed));
    skew #(.LANES(COLS), .WIDTH(DATA_W)) skew_w (.clk(clk), .rst(rst), .step(step), .in(w), .out(w_skewed));
    skew #(.LANES(COLS), .WIDTH(ACC_W), .REVERSE(1)) deskew_y (
        .clk(clk), .rst(rst), .step(step), .in(y_skewed), .out(y)
    );

    assign w_link[0 +: COLS*DATA_W] = w_skewed;
    assign p_link[0 +: COLS*ACC_W]  = {COLS*ACC_W{1'b0}};
    assign y_skewed = p_link[ROWS*COLS*ACC_W +: COLS*ACC_W];

    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            assign a_plain[r*LANE_W +: LANE_W] = {first, a[r*DATA_W +: DATA_W]};
            assign a_link[r*(COLS+1)*LANE_W +: LANE_W] = a_skewed[r*LANE_W +: LANE_W];
            assign load_link[r*(COLS+1)] = load[r];
            for (c = 0; c < COLS; c = c + 1) begin : g_column
                localparam HERE = r*(COLS+1) + c;
                ws_pe #(.DATA_W(DATA_W), .ACC_W(ACC_W), .FLOAT(FLOAT)) pe (
                    .clk(clk), .rst(rst), .step(step),
                    .first_in(a_link[HERE*LANE_W + DATA_W]), .a_in(a_link[HERE*LANE_W +: DATA_W]),
                    .first_out(a_link[(HERE+1)*LANE_W + DATA_W]), .a_out(a_link[(HERE+1)*LANE_W +: DATA_W]),
                    .load_in(load_link[HERE]), .load_out(load_link[HERE+1]),
                    .w_in(w_link[(r*COLS+c)*DATA_W +: DATA_W]), .w_out(w_link[((r+1)*COLS+c)*DATA_W +: DATA_W]),
                    .p_in(p_link[(r*COLS+c)*ACC_W +: ACC_W]), .p_out(p_link[((r+1)*COLS+c)*ACC_W +: ACC_W])
                );
            end
        end
    endgenerate

    // What leaves the last column to the right and the last row of the weight chain ends here.
    wire unused;
    assign unused = &{1'b0, a_link, load_link, w_link[ROWS*COLS*DATA_W +: COLS*DATA_W]};
endmodule
