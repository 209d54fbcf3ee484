/* sin, cos, tan of any number: x in quarter turns, less the nearest integer n, is in [-1/2, 1/2]. Where
   what is rare is a branch for a vector, numbers below 2^20 are reduced in fewer steps. */
#include "variants.h"

/* 2/pi times 2^(8 j), modulo 4, in two parts: that of which a float, which is an integer below 2^32
   times 2^(8 j) if j > 0, needs the product. Below 2^31 j is 0 and nothing is left out. */
static const double miniml_turns32[14] = {
    0x1.45f306dc9c883p-1, -0x1.067c91b1bbeadp+0, 0x1.836e4e44152ap+0, -0x1.236377d5ac07bp-1,
    -0x1.b1bbead603d8bp+0, -0x1.bbead603d8a83p+0, 0x1.529fc2757d1f5p-4, 0x1.29fc2757d1f53p+0,
    0x1.fc2757d1f534ep+0, 0x1.3abe8fa9a6eep-3, -0x1.505c1596447e5p-1, -0x1.70565911f924fp-3,
    0x1.f534ddc0db629p+0, 0x1.34ddc0db6295ap+0};
static const double miniml_turns32_low[14] = {
    -0x1.6b01ec5417056p-55, -0x1.80f62a0b82b2dp-54, -0x1.ec54170565912p-55,
    -0x1.505c1596447e5p-57, 0x1.f47d4d377036ep-54, 0x1.f534ddc0db629p-56, 0x1.a6ee06db14acdp-59,
    0x1.377036d8a5665p-54, -0x1.1f924eb53361ep-55, 0x1.b6c52b3278872p-57, 0x1.b14acc9e21c82p-55,
    0x1.2b3278872084p-57, 0x1.664f10e4107f9p-54, -0x1.b0ef1bef806bap-54};

/* The rest r of |x| in radians, and n modulo 4 in the last bits of what is returned. */
static inline uint64_t miniml_quarters32(float x, double *r) {
  const float a = __builtin_fabsf(x);
  const int exponent = (int)(miniml_bits32(a) >> 23);
  const int j = ((exponent > 150 ? exponent : 150) - 150) >> 3;
  const double whole = (double)a * miniml_real64((uint64_t)(1023 - 8 * j) << 52);
  const double turns = whole * miniml_turns32[j];
  const double low = miniml_madd64(whole, miniml_turns32_low[j],
                                   __builtin_fma(whole, miniml_turns32[j], -turns));
  const double n = turns + MINIML_ROUND64;
  *r = (turns - (n - MINIML_ROUND64) + low) * 0x1.921fb54442d18p+0;
  return miniml_bits64(n);
}
/* sin(r) = r + r^3 s(r^2) to 2^-37, cos(r) = 1 + r^2 c(r^2) to 2^-33. */
static inline double miniml_sine32(double r) {
  const double z = r * r;
  double s = 0x1.6cd1b66fb147cp-19;
  s = miniml_madd64(s, z, -0x1.a00f7e3053206p-13);
  s = miniml_madd64(s, z, 0x1.1111086933175p-7);
  s = miniml_madd64(s, z, -0x1.5555554c70378p-3);
  return miniml_madd64(r * z, s, r);
}
static inline double miniml_cosine32(double r) {
  const double z = r * r;
  double c = 0x1.99164910a9d14p-16;
  c = miniml_madd64(c, z, -0x1.6c07eff8d8acap-10);
  c = miniml_madd64(c, z, 0x1.55553c74f2339p-5);
  c = miniml_madd64(c, z, -0x1.ffffffcb7871bp-2);
  return miniml_madd64(z, c, 1);
}
/* sin(r + quarter pi / 2). */
static inline float miniml_wave32(double r, uint64_t quarter) {
  const double y = quarter & 1 ? miniml_cosine32(r) : miniml_sine32(r);
  return (float)(quarter & 2 ? -y : y);
}
static inline float miniml_any_sin32(float x) {
  double r;
  const uint64_t quarter = miniml_quarters32(x, &r);
  const float y = miniml_wave32(r, quarter);
  return miniml_bits32(x) >> 31 ? -y : y;
}
static inline float miniml_any_cos32(float x) {
  double r;
  const uint64_t quarter = miniml_quarters32(x, &r);
  return miniml_wave32(r, quarter + 1);
}
static inline float miniml_any_tan32(float x) {
  double r;
  const uint64_t odd = miniml_quarters32(x, &r) & 1;
  const double sine = miniml_sine32(r), cosine = miniml_cosine32(r);
  const float y = (float)((odd ? cosine : sine) / (odd ? -sine : cosine));
  return miniml_bits32(x) >> 31 ? -y : y;
}

/* The same in four parts for steps of 32 bits: a double comes as near to a multiple of pi / 2 as
   2^-61, so that many digits of the product cancel. */
static const double miniml_turns64[31] = {
    0x1.45f306dc9c883p-1, -0x1.b1bbead603d8bp+0, 0x1.fc2757d1f534ep+0, 0x1.f534ddc0db629p+0,
    0x1.b6c52b3278872p-1, 0x1.3c439041fe516p+0, 0x1.fe5163abdebbcp+0, -0x1.0a21d4f246dc9p-3,
    0x1.b7246e3a424ddp+0, -0x1.bdb22d1ff9b6dp+0, 0x1.924bba8274648p-6, -0x1.f62e6de301e21p+0,
    0x1.fc3bd63962535p-1, 0x1.62534e7dd1047p-1, -0x1.177dca0ad144cp+0, 0x1.2ebb4484e99c7p+0,
    0x1.d338e04d68bfp-1, -0x1.4ba081bec66e3p+0, 0x1.3991d63983534p+0, 0x1.835339f49c846p+0,
    0x1.3908bf177bf25p-1, -0x1.081b5f13801dap-2, -0x1.c00ed00043f4dp-1, -0x1.0fd33f8086877p-3,
    -0x1.0d0ee74a5f593p-4, -0x1.4beb25c12593p-1, -0x1.25930261b069fp-1, -0x1.b069ec9161738p-1,
    -0x1.61738132c3403p-1, -0x1.61a015d28ad84p+0, 0x1.7527bac7ebe5fp+0};
static const double miniml_turns64_b[31] = {
    -0x1.6b01ec5417056p-55, 0x1.f47d4d377036ep-54, -0x1.1f924eb53361ep-55,
    0x1.664f10e4107f9p-54, 0x1.07f9458eaf7afp-58, 0x1.d5ef5de2b0db9p-55, 0x1.586dc91b8e909p-54,
    0x1.d2126e9700325p-59, 0x1.700324977504fp-55, -0x1.15f62e6de301ep-56, 0x1.cfe1deb1cb12ap-60,
    -0x1.38d3b5963045ep-54, -0x1.822efb9415a29p-57, -0x1.0568a25dbd8b3p-55,
    0x1.213a671c09ad1p-54, 0x1.35a2fbf209cc9p-59, -0x1.bec66e29c67cbp-56, 0x1.8e60d4ce7d272p-54,
    -0x1.82d8dee81d108p-54, -0x1.d1081b5f13802p-58, 0x1.d8ffc4bffef03p-59,
    -0x1.0fd33f8086877p-67, 0x1.fde5e2316b415p-61, -0x1.d297d64b824b2p-58,
    0x1.f6d367ecf27cbp-60, -0x1.30d834f648b0cp-56, 0x1.b74f463f669e6p-56,
    -0x1.32c3402ba515bp-57, 0x1.16ba93dd63f5fp-55, -0x1.4e050683a130cp-54, 0x1.7b3d0739f78a5p-56};
static const double miniml_turns64_c[31] = {
    -0x1.6447e493ad4cep-109, -0x1.d6a66c3bc6fbep-108, 0x1.c820ff28b1d5fp-111,
    0x1.163abdebbc562p-108, -0x1.d4f246dc8e2dfp-115, 0x1.1b8e909374b8p-110,
    0x1.ba5c00c925dd4p-109, -0x1.a22bec5cdbc6p-113, -0x1.cdbc603c429c7p-109,
    -0x1.0a71a76b2c609p-111, -0x1.63045df7282b4p-114, 0x1.1afa975da2427p-111,
    0x1.a24274ce38136p-111, -0x1.c7eca5d040df6p-111, 0x1.f7e413991d63ap-108,
    -0x1.4e33e566305b2p-115, 0x1.9cfa4e422fc5ep-111, 0x1.17e2ef7e4a0ecp-110,
    -0x1.b5f13801da001p-110, 0x1.2fffbc0b301fep-113, -0x1.9fc04343b9d29p-114,
    -0x1.d297d64b824b2p-122, -0x1.2e092c98130d8p-116, -0x1.8130d834f648bp-112,
    0x1.36e9e8c7ecd3dp-117, 0x1.8fd9a797fa8b6p-110, -0x1.5d28ad8453814p-116,
    -0x1.14e050683a131p-114, 0x1.7c5ecf41ce7dep-110, 0x1.ce7de294a4baap-110,
    0x1.497535fdafd89p-111};
static const double miniml_turns64_d[31] = {
    0x1.e21c820ff28b2p-163, -0x1.ae9c5421443aap-168, -0x1.443a9e48db91cp-168,
    -0x1.236e4716f6c8bp-162, 0x1.374b801924bbbp-170, 0x1.924bba8274648p-166,
    0x1.3a32439fc3bd6p-165, -0x1.e214e34ed658cp-168, 0x1.894d39f74411bp-163,
    0x1.1046bea5d7689p-165, -0x1.44bb7b16638fep-168, 0x1.338e04d68befdp-165,
    -0x1.741037d8cdc54p-165, -0x1.9b8a719f2b318p-166, -0x1.f2b3182d8dee8p-162,
    0x1.08bf177bf2507p-169, -0x1.036be27003b4p-167, 0x1.ff897ffde0598p-164,
    0x1.e05980fef2f12p-164, -0x1.a1dce94beb25cp-169, -0x1.f592e092c9813p-168,
    -0x1.8130d834f648bp-176, -0x1.a7b24585ce04dp-171, -0x1.738132c3402bap-169,
    -0x1.00ae9456c229cp-171, -0x1.5b08a7028341dp-165, -0x1.a0e84c2f8c608p-172,
    0x1.0739f78a5292fp-168, 0x1.4a525d4d7f6bfp-165, -0x1.404a04ee072a3p-164,
    -0x1.ca8bdea7f33eep-170};

/* x modulo 4, exactly. */
static inline double miniml_modulo4(double x) { return x - 4 * __builtin_rint(x / 4); }
/* *x + y, rounded, and what that lost. */
static inline double miniml_added(double *x, double y) {
  const double sum = *x + y, part = sum - *x, lost = (*x - (sum - part)) + (y - part);
  *x = sum;
  return lost;
}
static inline uint64_t miniml_quarters64(double x, double *r, double *r_low) {
  const double a = __builtin_fabs(x);
  const int exponent = (int)(miniml_bits64(a) >> 52);
  const int j = ((exponent > 1075 ? exponent : 1075) - 1075) >> 5;
  const double whole = a * miniml_real64((uint64_t)(1023 - 32 * j) << 52);
  const double b = miniml_turns64_b[j], c = miniml_turns64_c[j];
  const double p = whole * miniml_turns64[j], p_low = __builtin_fma(whole, miniml_turns64[j], -p);
  const double q = whole * b, q_low = __builtin_fma(whole, b, -q);
  const double v = whole * c, v_low = __builtin_fma(whole, c, -v);
  double sum = miniml_modulo4(p);
  double low = miniml_added(&sum, miniml_modulo4(p_low));
  low += miniml_added(&sum, miniml_modulo4(q));
  const double n = sum + MINIML_ROUND64;
  sum -= n - MINIML_ROUND64;
  low += miniml_added(&sum, q_low);
  low += miniml_added(&sum, v);
  low += miniml_madd64(whole, miniml_turns64_d[j], v_low);
  const double turns = sum + low, turns_low = sum - turns + low;
  const double made = turns * 0x1.921fb54442d18p+0;
  const double lost = __builtin_fma(turns, 0x1.921fb54442d18p+0, -made);
  *r = made;
  *r_low = miniml_madd64(turns, 0x1.1a62633145c07p-54, lost) + turns_low * 0x1.921fb54442d18p+0;
  return miniml_bits64(n);
}
/* y with its sign changed where that of `other` is set. */
static inline double miniml_turned64(double y, uint64_t other) {
  return miniml_real64(miniml_bits64(y) ^ (other & 1ULL << 63));
}
/* sin(r): r + r^3 s(r^2) to 2^-57. cos(r): 1 - r^2 / 2 + r^4 c(r^2) to 2^-63. `low` adds to r. */
static inline double miniml_sine64(double r, double low) {
  const double z = r * r, top = 1 - 0.5 * z;
  double s = 0x1.5d8b55af16375p-33;
  s = miniml_madd64(s, z, -0x1.ae5e4b8541c31p-26);
  s = miniml_madd64(s, z, 0x1.71de35552d723p-19);
  s = miniml_madd64(s, z, -0x1.a01a019be9232p-13);
  s = miniml_madd64(s, z, 0x1.111111110f73p-7);
  s = miniml_madd64(s, z, -0x1.5555555555548p-3);
  return r + miniml_madd64(r * z, s, low * top);
}
static inline double miniml_cosine64(double r, double low, double *lost) {
  const double z = r * r, half = 0.5 * z, top = 1 - half;
  double c = -0x1.8fa8dcbf9f6a5p-37;
  c = miniml_madd64(c, z, 0x1.1ee9e0133e30ap-29);
  c = miniml_madd64(c, z, -0x1.27e4f7f71d5bbp-22);
  c = miniml_madd64(c, z, 0x1.a01a019c952fap-16);
  c = miniml_madd64(c, z, -0x1.6c16c16c1503ap-10);
  c = miniml_madd64(c, z, 0x1.555555555554bp-5);
  const double rest = (1 - top - half) + miniml_madd64(z * z, c, -r * low), y = top + rest;
  *lost = top - y + rest;
  return y;
}
static inline double miniml_wave64(double r, double low, uint64_t quarter) {
  double lost;
  const double y = quarter & 1 ? miniml_cosine64(r, low, &lost) : miniml_sine64(r, low);
  return miniml_turned64(y, quarter << 62);
}
/* tan(r + odd pi / 2), with what rounding has taken from the cosine, which is between 0.7 and 1. */
static inline double miniml_slope64(double r, double low, uint64_t odd) {
  double lost;
  const double sine = miniml_sine64(r, low), cosine = miniml_cosine64(r, low, &lost);
  const double y = (odd ? cosine : sine) / (odd ? -sine : cosine);
  return miniml_madd64(y, lost * (odd ? 1.2 : -1.2), y);
}
static inline double miniml_any_sin64(double x) {
  double r, low;
  const uint64_t quarter = miniml_quarters64(x, &r, &low);
  const double made = miniml_turned64(miniml_wave64(r, low, quarter), miniml_bits64(x));
  return __builtin_fabs(x) < 0x1p-27 ? x : made;
}
static inline double miniml_any_cos64(double x) {
  double r, low;
  const uint64_t quarter = miniml_quarters64(x, &r, &low);
  return miniml_wave64(r, low, quarter + 1);
}
static inline double miniml_any_tan64(double x) {
  double r, low;
  const uint64_t odd = miniml_quarters64(x, &r, &low) & 1;
  const double made = miniml_turned64(miniml_slope64(r, low, odd), miniml_bits64(x));
  return __builtin_fabs(x) < 0x1p-27 ? x : made;
}

#ifdef MINIML_RARELY
#define MINIML_CIRCULAR(type, name, bits)                                                     \
  MINIML_RARELY(type, miniml_##name##_float##bits, miniml_near_##name##bits, miniml_any_##name##bits)

/* x less n times pi, of which the first product is not rounded; sin(r) = r + r^3 s(r^2) to 2^-35 up to
   pi / 2, and its sign changes with n. */
static inline float miniml_half_turns32(double x, double n, uint64_t odd) {
  const double rest = __builtin_fma(n, -0x1.921fb54442d18p+1, x);
  const double r = __builtin_fma(n, -0x1.1a62633145c07p-53, rest), z = r * r;
  double s = -0x1.9a68911395775p-26;
  s = __builtin_fma(s, z, 0x1.7170809a453c6p-19);
  s = __builtin_fma(s, z, -0x1.a017d9a468b56p-13);
  s = __builtin_fma(s, z, 0x1.11110c4a107b1p-7);
  s = __builtin_fma(s, z, -0x1.5555554769b4ep-3);
  return (float)miniml_real64(miniml_bits64(r * __builtin_fma(z, s, 1)) ^ odd << 63);
}
/* The number of quarter turns, in the last bits, and what is left in radians, *r + *low. pi / 2 is in three
   parts: less n times the first, x has so few digits left that nothing is rounded. */
static inline uint64_t miniml_near_quarters64(double x, double *r, double *low) {
  const double shifted = __builtin_fma(x, 0x1.45f306dc9c883p-1, MINIML_ROUND64);
  const double n = shifted - MINIML_ROUND64, rest = __builtin_fma(n, -0x1.921fb54442d18p+0, x);
  *r = rest - n * 0x1.1a62633145c07p-54;
  const double lost = __builtin_fma(n, -0x1.1a62633145c07p-54, rest - *r);
  *low = __builtin_fma(n, 0x1.f1976b7ed8fbcp-110, lost);
  return miniml_bits64(shifted);
}
#else
#define MINIML_CIRCULAR(type, name, bits)                                                     \
  static inline type miniml_##name##_float##bits(type x) { return miniml_any_##name##bits(x); }
#endif
