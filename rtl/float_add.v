// Exact sum of two unpacked binary numbers, rounded once to fp32 (round to nearest, ties to even).
// An operand's value is (-1)^sign * sig / 2^23 * 2^exp; it need not be normalised, zero is sig = 0.
// Subnormal results are kept; a result beyond the largest finite number becomes infinity.
module float_add (
    input  wire               x_sign,
    input  wire signed [10:0] x_exp,
    input  wire        [23:0] x_sig,
    input  wire               y_sign,
    input  wire signed [10:0] y_exp,
    input  wire        [23:0] y_sig,
    output wire        [31:0] sum
);
    localparam signed [10:0] ZERO_EXP = -11'sd512;  // below every exponent that a non-zero operand can have

    function [4:0] leading_zeros;
        input [27:0] value;
        integer i;
        begin
            leading_zeros = 5'd28;
            for (i = 0; i < 28; i = i + 1)
                if (value[i]) leading_zeros = 5'd27 - i[4:0];
        end
    endfunction

    function signed [10:0] widen;
        input [4:0] count;
        widen = {6'b0, count};
    endfunction

    // Normalise: bit 23 set, unless zero.
    wire        [4:0]  x_zeros, y_zeros;
    wire        [23:0] x_norm, y_norm;
    wire signed [10:0] x_place, y_place;
    assign x_zeros = leading_zeros({x_sig, 4'b0});
    assign y_zeros = leading_zeros({y_sig, 4'b0});
    assign x_norm  = x_sig << x_zeros;
    assign y_norm  = y_sig << y_zeros;
    assign x_place = (x_sig == 24'b0) ? ZERO_EXP : x_exp - widen(x_zeros);
    assign y_place = (y_sig == 24'b0) ? ZERO_EXP : y_exp - widen(y_zeros);

    // Align the smaller to the larger; what falls off the end is kept as one sticky bit.
    wire               swap, big_sign;
    wire signed [10:0] big_place;
    wire        [10:0] distance;
    wire        [23:0] big_sig, small_sig;
    wire        [53:0] shifted;
    wire        [26:0] small_kept;
    assign swap       = (x_place < y_place) || (x_place == y_place && x_norm < y_norm);
    assign big_sign   = swap ? y_sign : x_sign;
    assign big_place  = swap ? y_place : x_place;
    assign big_sig    = swap ? y_norm : x_norm;
    assign small_sig  = swap ? x_norm : y_norm;
    assign distance   = swap ? y_place - x_place : x_place - y_place;
    assign shifted    = {small_sig, 30'b0} >> distance;
    assign small_kept = {shifted[53:28], shifted[27] | (|shifted[26:0]) | (distance > 11'd53 && small_sig != 24'b0)};

    // Add or subtract, then bring the leading one to bit 27: value = norm / 2^27 * 2^place.
    wire        [27:0] raw, norm;
    wire        [4:0]  raw_zeros;
    wire signed [10:0] biased;
    assign raw       = (x_sign != y_sign) ? {1'b0, big_sig, 3'b0} - {1'b0, small_kept}
                                          : {1'b0, big_sig, 3'b0} + {1'b0, small_kept};
    assign raw_zeros = leading_zeros(raw);
    assign norm      = raw << raw_zeros;
    assign biased    = big_place + 11'sd128 - widen(raw_zeros);

    // Subnormal results lose low bits to the right, again with a sticky bit.
    wire               subnormal;
    wire        [10:0] excess;
    wire        [55:0] settled;
    wire        [26:0] rounding;
    wire        [7:0]  field;
    wire               up;
    assign subnormal = biased <= 11'sd0;
    assign excess    = subnormal ? 11'd1 - biased : 11'd0;
    assign settled   = {norm, 28'b0} >> excess;
    assign rounding  = {settled[54:29], settled[28] | (|settled[27:0]) | (excess > 11'd55)};
    assign field     = settled[55] ? biased[7:0] : 8'd0;
    assign up        = rounding[3] && (rounding[4] || (|rounding[2:0]));

    // A carry out of the fraction moves into the exponent field, which is what rounding up must do.
    wire [30:0] magnitude;
    assign magnitude = {field, rounding[26:4]} + {30'b0, up};
    assign sum = (raw == 28'b0)      ? {x_sign & y_sign, 31'b0}
               : (biased > 11'sd254) ? {big_sign, 8'hff, 23'b0}
                                     : {big_sign, magnitude};
endmodule
