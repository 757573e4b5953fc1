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

    skew #(.LANES(ROWS), .WIDTH(LANE_W)) skew_a (.clk(clk), .rst(rst), .step(step), .in(a_plain), .out(a_skewed));
    skew #(.LANES(COLS), .WIDTH(DATA_W)) skew_w (.clk(clk), .rst(rst), .step(step), .in(w), .out(w_skewed));
    skew #(.LANES(COLS), .WIDTH(ACC_W), .REVERSE(1)) deskew_y (
        .clk(clk), .rst(rst), .step(step), .in(y_skewed), .out(y)
    );

    // Each cell's block holds the wires that it drives; its neighbours refer to them by name.
    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            assign a_plain[r*LANE_W +: LANE_W] = {first, a[r*DATA_W +: DATA_W]};
            for (c = 0; c < COLS; c = c + 1) begin : g_column
                wire              first_left, first_here, load_left, load_here;
                wire [DATA_W-1:0] a_left, a_here, w_above, w_here;
                wire [ACC_W-1:0]  p_above, p_here;

                if (c == 0) begin : g_west
                    assign {first_left, a_left} = a_skewed[r*LANE_W +: LANE_W];
                    assign load_left = load[r];
                end else begin : g_inner
                    assign first_left = g_row[r].g_column[c-1].first_here;
                    assign a_left     = g_row[r].g_column[c-1].a_here;
                    assign load_left  = g_row[r].g_column[c-1].load_here;
                end
                if (r == 0) begin : g_north
                    assign w_above = w_skewed[c*DATA_W +: DATA_W];
                    assign p_above = {ACC_W{1'b0}};
                end else begin : g_below
                    assign w_above = g_row[r-1].g_column[c].w_here;
                    assign p_above = g_row[r-1].g_column[c].p_here;
                end

                ws_pe #(.DATA_W(DATA_W), .ACC_W(ACC_W), .FLOAT(FLOAT)) pe (
                    .clk(clk), .rst(rst), .step(step),
                    .first_in(first_left), .a_in(a_left), .load_in(load_left), .w_in(w_above), .p_in(p_above),
                    .first_out(first_here), .a_out(a_here), .load_out(load_here), .w_out(w_here), .p_out(p_here)
                );

                if (r == ROWS - 1) begin : g_south
                    wire unused;
                    assign unused = &{1'b0, w_here};
                    assign y_skewed[c*ACC_W +: ACC_W] = p_here;
                end
                if (c == COLS - 1) begin : g_east
                    wire unused;
                    assign unused = &{1'b0, first_here, a_here, load_here};
                end
            end
        end
    endgenerate
endmodule
