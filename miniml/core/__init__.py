"""The core: values, calls and the settings under which they run.

Low to high: `scope`, `hints`, `partition`, `families`, `epoch`; `dtype`, `errors`; `abstract`,
`settings`, `files`, `access`, `tracebacks`; `trace`, `primitive`, `bprop`, `infer`; then, above the
operations, `tensor`, `parameter`, `random`, `arguments`, `constructor`.
"""
