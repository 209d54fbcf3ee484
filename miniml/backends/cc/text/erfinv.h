/* erfinv, by polynomials of log(1 - x^2). */
#include "log.h"
#include "rough.h"

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
/* w = -log2(1 - x^2): x p(w) up to w = 7 and x q(w) beyond, to 2^-31 and 2^-32 of itself. */
static inline float miniml_erfinv_float32(float x) {
  const double a = __builtin_fabsf(x), w = -miniml_rough_log2((1 - a) * (1 + a));
  double p = 0x1.76a1ad9be16cep-39;
  p = miniml_madd64(p, w, -0x1.9b204ba140f4p-34);
  p = miniml_madd64(p, w, 0x1.20f4811d721aep-30);
  p = miniml_madd64(p, w, 0x1.cef7982de78d3p-31);
  p = miniml_madd64(p, w, -0x1.b5f3ce18341a3p-24);
  p = miniml_madd64(p, w, 0x1.53a68845d3ca4p-22);
  p = miniml_madd64(p, w, 0x1.e6cf21583c943p-18);
  p = miniml_madd64(p, w, -0x1.eb6231e09e121p-16);
  p = miniml_madd64(p, w, -0x1.97d0d566ce22ap-11);
  p = miniml_madd64(p, w, 0x1.6ba8a19c33aebp-8);
  p = miniml_madd64(p, w, 0x1.495bca64056acp-3);
  p = miniml_madd64(p, w, 0x1.c5bf891d8312dp-1);
  double q = 0x1.4bbff44dd56f2p-56;
  q = miniml_madd64(q, w, -0x1.088770df071d7p-48);
  q = miniml_madd64(q, w, 0x1.8045a9160c92cp-42);
  q = miniml_madd64(q, w, -0x1.4f8aad0e89ceap-36);
  q = miniml_madd64(q, w, 0x1.86de50f6c06c1p-31);
  q = miniml_madd64(q, w, -0x1.3daf7770cc750p-26);
  q = miniml_madd64(q, w, 0x1.6c036825e1c6dp-22);
  q = miniml_madd64(q, w, -0x1.1e23cb933e609p-18);
  q = miniml_madd64(q, w, 0x1.1496cc2b1840ep-15);
  q = miniml_madd64(q, w, -0x1.653beee73bb74p-14);
  q = miniml_madd64(q, w, -0x1.088977d31b152p-10);
  q = miniml_madd64(q, w, 0x1.f39381870459bp-8);
  q = miniml_madd64(q, w, 0x1.3cd9328663d31p-3);
  q = miniml_madd64(q, w, 0x1.c945d37bd7a81p-1);
  const double y = a * (w < 7 ? p : q);
  return __builtin_copysignf(a == 1 ? INFINITY : (float)y, x);
}
