// Lane i of a skew is its input as it was i steps ago, and the opposite skew behind it makes every lane equally late;
// steps may be withheld at any time.
module skew_proof (
    input wire        clk,
    input wire        rst,
    input wire        step,
    input wire [11:0] in
);
    wire [11:0] skewed, straight;
    skew #(.LANES(4), .WIDTH(3)) dut (.clk(clk), .rst(rst), .step(step), .in(in), .out(skewed));
    skew #(.LANES(4), .WIDTH(3), .REVERSE(1)) back (.clk(clk), .rst(rst), .step(step), .in(skewed), .out(straight));

    // History by steps: the word that was on `in` one, two and three steps ago.
    reg past_valid = 1'b0;
    reg [11:0] ago1, ago2, ago3;
    always @(posedge clk) begin
        past_valid <= 1'b1;
        if (!past_valid) assume (rst);
        if (rst) {ago1, ago2, ago3} <= 36'b0;
        else if (step) {ago1, ago2, ago3} <= {in, ago1, ago2};
        if (past_valid && !rst) begin
            assert (skewed == {ago3[11:9], ago2[8:6], ago1[5:3], in[2:0]});
            assert (straight == ago3);
        end
    end
endmodule
