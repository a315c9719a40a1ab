// A function of packages for tests of the function-runner. It is built for this machine and for WASI.
module stoa.dev/tests/functions

go 1.26.0
