"""The core: values, calls and the settings under which they run.

Low to high: `scope`, `families`; `dtype`, `errors`, `options`, `epoch`; `abstract`, `settings`,
`hints`, `access`, `files`; `trace`, `primitive`, `bprop`; then, above the operations, `tensor`,
`parameter`, `infer`.
"""
