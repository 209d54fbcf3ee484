/* tan. */
#include "circular.h"

#ifdef MINIML_RARELY
/* tan(r) = r + r^3 t(r^2) to 2^-27 up to 0.83, and -1 / tan(r) a quarter turn further. pi / 2 is in three parts: x
   less n times the first is not rounded, what the next product and its sum lose is in `low`. */
static inline float miniml_near_tan32(float x) {
  const float shifted = __builtin_fmaf(x, 0x1.45f306p-1f, MINIML_ROUND32), n = shifted - MINIML_ROUND32;
  const float less = MINIML_ROUND32 - shifted, next = less * 0x1.777a5cp-25f;  /* of -0 nothing but 0 */
  const float first = __builtin_fmaf(n, -0x1.921fb6p+0f, x), r = first - next, part = first - r;
  const float lost = (first - (r + part)) + (part - next), z = r * r;
  const float low = __builtin_fmaf(n, 0x1.ee59dap-50f, lost - __builtin_fmaf(less, 0x1.777a5cp-25f, -next));
  float t = 0x1.494d2ap-8f;
  t = __builtin_fmaf(t, z, -0x1.4cc76p-10f);
  t = __builtin_fmaf(t, z, 0x1.878adp-7f);
  t = __builtin_fmaf(t, z, 0x1.55559p-6f);
  t = __builtin_fmaf(t, z, 0x1.bb9bdcp-5f);
  t = __builtin_fmaf(t, z, 0x1.110912p-3f);
  t = __builtin_fmaf(t, z, 0x1.555572p-2f);
  const float bend = __builtin_fmaf(r * z, t, __builtin_fmaf(low, z, low)), y = r + bend, w = -1 / y;
  const float missing = __builtin_fmaf(w, r - y + bend, __builtin_fmaf(w, y, 1));
  return miniml_bits32(shifted) & 1 ? __builtin_fmaf(w, missing, w) : __builtin_copysignf(y, r);
}
static inline double miniml_near_tan64(double x) {
  double r, low;
  const uint64_t odd = miniml_near_quarters64(__builtin_fabs(x), &r, &low) & 1;
  return miniml_turned64(miniml_slope64(r, low, odd), miniml_bits64(x));
}
#endif
MINIML_CIRCULAR(float, tan, 32)
MINIML_CIRCULAR(double, tan, 64)
