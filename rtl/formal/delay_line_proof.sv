// A delay line of three steps gives back what went in three steps ago, however steps are withheld.
module delay_line_proof (
    input wire       clk,
    input wire       rst,
    input wire       step,
    input wire [2:0] in
);
    wire [2:0] out;
    wire [8:0] stages;
    delay_line dut (.\genblk1.g_chain.stages (stages), .clk(clk), .rst(rst), .step(step), .in(in), .out(out));

    reg past_valid = 1'b0;
    reg [2:0] ago1, ago2, ago3;
    always @(posedge clk) begin
        past_valid <= 1'b1;
        if (!past_valid) assume (rst);
        if (rst) {ago1, ago2, ago3} <= 9'b0;
        else if (step) {ago1, ago2, ago3} <= {in, ago1, ago2};
        if (past_valid) begin
            assert (stages == {ago3, ago2, ago1});
            assert (out == ago3);
        end
    end
endmodule
