/* erfinv, by polynomials of log(1 - x^2). */
#include "log.h"

/* w = -log(1 - x^2): x p(w - 25/8) up to w = 25/4, and with s = sqrt(w) x q(s - 13/4) up to s = 4 and
   x r(s - 5) beyond, to 2^-51, 2^-52 and 2^-53 of itself. */
static inline double miniml_erfinv_float64(double x) {
  const double a = __builtin_fabs(x), w = -miniml_log_float64((1 - a) * (1 + a));
  const double s = __builtin_sqrt(w), near = w - 3.125, far = s - 3.25, last = s - 5;
  double p = -0x1.8accc8afb76bfp-63;
  p = miniml_madd64(p, near, 0x1.41b6a6808c7dap-60);
  p = miniml_madd64(p, near, 0x1.993b19ab09b1fp-57);
  p = miniml_madd64(p, near, -0x1.28ed96a168730p-53);
  p = miniml_madd64(p, near, 0x1.9d0a067acd75ap-56);
  p = miniml_madd64(p, near, 0x1.d9ff024fa14f5p-48);
  p = miniml_madd64(p, near, -0x1.6d5b6e6498f5ap-45);
  p = miniml_madd64(p, near, -0x1.6cf16d4f313edp-44);
  p = miniml_madd64(p, near, 0x1.72a6bd245d019p-39);
  p = miniml_madd64(p, near, -0x1.c89c8277ab157p-37);
  p = miniml_madd64(p, near, -0x1.dc59920972154p-35);
  p = miniml_madd64(p, near, 0x1.20f516cc70462p-30);
  p = miniml_madd64(p, near, -0x1.1a9e31141ec93p-28);
  p = miniml_madd64(p, near, -0x1.f36ceb01eb72fp-26);
  p = miniml_madd64(p, near, 0x1.c6b4f599a1e0bp-22);
  p = miniml_madd64(p, near, -0x1.6e8a53d1e8170p-20);
  p = miniml_madd64(p, near, -0x1.d1d1f7b6ceffbp-17);
  p = miniml_madd64(p, near, 0x1.879c2a20b2f89p-13);
  p = miniml_madd64(p, near, -0x1.8457694852af7p-11);
  p = miniml_madd64(p, near, -0x1.8b6c33114e9d6p-8);
  p = miniml_madd64(p, near, 0x1.ebd80d9b13e2ep-3);
  p = miniml_madd64(p, near, 0x1.a755e7c99ae86p+0);
  double q = 0x1.853abe93d6530p-24;
  q = miniml_madd64(q, far, -0x1.216b49c3e87b0p-22);
  q = miniml_madd64(q, far, 0x1.3e9a6d30a85d3p-26);
  q = miniml_madd64(q, far, 0x1.91c92de8ef627p-20);
  q = miniml_madd64(q, far, -0x1.0d62b58b0320ep-18);
  q = miniml_madd64(q, far, 0x1.88d62c8367f8bp-19);
  q = miniml_madd64(q, far, 0x1.a29b4e04620c4p-17);
  q = miniml_madd64(q, far, -0x1.8cf191e641396p-15);
  q = miniml_madd64(q, far, 0x1.1e684192b19fcp-14);
  q = miniml_madd64(q, far, 0x1.932dcae5d08e3p-16);
  q = miniml_madd64(q, far, -0x1.7448a828785fcp-12);
  q = miniml_madd64(q, far, 0x1.f3cc54d4c0f70p-11);
  q = miniml_madd64(q, far, -0x1.ba92413579a60p-10);
  q = miniml_madd64(q, far, 0x1.468eeca8312a7p-9);
  q = miniml_madd64(q, far, -0x1.ebadabb88572cp-9);
  q = miniml_madd64(q, far, 0x1.5ffcfe5b6e8abp-8);
  q = miniml_madd64(q, far, 0x1.0158a6d641d38p+0);
  q = miniml_madd64(q, far, 0x1.8abcc380d5a48p+1);
  double r = 0x1.7bf3352c8239dp-35;
  r = miniml_madd64(r, last, -0x1.a3c025912332cp-36);
  r = miniml_madd64(r, last, -0x1.e37b71de86834p-32);
  r = miniml_madd64(r, last, 0x1.9ac4d7937e70ep-30);
  r = miniml_madd64(r, last, -0x1.dc61fccf43f95p-29);
  r = miniml_madd64(r, last, 0x1.066eb924cc13ep-27);
  r = miniml_madd64(r, last, -0x1.062fada95c0b4p-26);
  r = miniml_madd64(r, last, 0x1.f46de6a3a99c7p-26);
  r = miniml_madd64(r, last, -0x1.2222645a2341ep-24);
  r = miniml_madd64(r, last, 0x1.ebcdc89b4dc93p-23);
  r = miniml_madd64(r, last, -0x1.0a908f456b4bap-20);
  r = miniml_madd64(r, last, 0x1.2fbd1f4558fafp-18);
  r = miniml_madd64(r, last, -0x1.4a348f706c6cbp-16);
  r = miniml_madd64(r, last, 0x1.3ebf4ec5aa69cp-14);
  r = miniml_madd64(r, last, -0x1.c2f36aa321f10p-13);
  r = miniml_madd64(r, last, -0x1.22ea5df0c7919p-13);
  r = miniml_madd64(r, last, 0x1.02a30d1fba110p+0);
  r = miniml_madd64(r, last, 0x1.3664ddd1ad7fbp+2);
  const double beyond = s < 4 ? q : r, y = a * (w < 6.25 ? p : beyond);
  return __builtin_copysign(a == 1 ? INFINITY : y, x);
}
/* w = log(1 - x^2): x (5/4 + p(w + 3/2)) down to w = -5 and x (11/4 + q(w + 9)) beyond, to 2^-26 and 2^-28 of
   itself. Of 1 it is inf and beyond NaN, by bits. */
static inline float miniml_erfinv_float32(float x) {
  const float a = __builtin_fabsf(x), left = miniml_fused32(-a, a, 1);
  float e;
  const float m = miniml_normal_mantissa32(miniml_bits32(left), &e);
  const float w = miniml_log_sum32(m - 1, e), near = w + 1.5f, far = w + 9;
  float p = 0x1.3961ecp-27f;
  p = miniml_madd32(p, near, 0x1.c408e4p-24f);
  p = miniml_madd32(p, near, 0x1.6ff742p-25f);
  p = miniml_madd32(p, near, -0x1.668418p-18f);
  p = miniml_madd32(p, near, -0x1.85a1c6p-16f);
  p = miniml_madd32(p, near, 0x1.748638p-13f);
  p = miniml_madd32(p, near, 0x1.123c9ap-9f);
  p = miniml_madd32(p, near, 0x1.cd426ap-11f);
  p = miniml_madd32(p, near, -0x1.005f02p-2f);
  p = miniml_madd32(p, near, 0x1.0e82f4p-9f);
  float q = 0x1.3430ccp-39f;
  q = miniml_madd32(q, far, 0x1.3cefb4p-34f);
  q = miniml_madd32(q, far, 0x1.29a638p-30f);
  q = miniml_madd32(q, far, 0x1.5785c4p-27f);
  q = miniml_madd32(q, far, 0x1.d6d772p-25f);
  q = miniml_madd32(q, far, -0x1.0a40d4p-23f);
  q = miniml_madd32(q, far, -0x1.404a2ap-17f);
  q = miniml_madd32(q, far, -0x1.b37f0ep-13f);
  q = miniml_madd32(q, far, -0x1.1eb866p-8f);
  q = miniml_madd32(q, far, -0x1.55e7bap-3f);
  q = miniml_madd32(q, far, 0x1.53df7ap-4f);
  const int close = w > -5;
  const float y = miniml_fused32(a, close ? 1.25f : 2.75f, a * (close ? p : q));
  const float end = miniml_real32(0x7f800000u | (uint32_t)(a != 1) << 22);
  return __builtin_copysignf(a < 1 ? y : end, x);
}
