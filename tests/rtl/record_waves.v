// Added beside a top when waves are recorded: writes every signal of TOP to waves.vcd.
module record_waves;
    initial begin
        $dumpfile("waves.vcd");
        $dumpvars(0, `TOP);
    end
endmodule
