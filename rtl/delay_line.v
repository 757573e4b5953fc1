// out is in as it was DELAY steps ago; DELAY = 0 is a wire.  Cleared by rst.
module delay_line #(
    parameter WIDTH = 8,
    parameter DELAY = 1
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             step,
    input  wire [WIDTH-1:0] in,
    output wire [WIDTH-1:0] out
);
    generate
        if (DELAY == 0) begin : g_wire
            wire unused;
            assign unused = &{1'b0, clk, rst, step};
            assign out = in;
        end else if (DELAY == 1) begin : g_single
            reg [WIDTH-1:0] stage;
            always @(posedge clk)
                if (rst) stage <= {WIDTH{1'b0}};
                else if (step) stage <= in;
            assign out = stage;
        end else begin : g_chain
            reg [WIDTH*DELAY-1:0] stages;
            always @(posedge clk)
                if (rst) stages <= {WIDTH*DELAY{1'b0}};
                else if (step) stages <= {stages[WIDTH*(DELAY-1)-1:0], in};
            assign out = stages[WIDTH*DELAY-1 -: WIDTH];
        end
    endgenerate
endmodule
