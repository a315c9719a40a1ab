// Which versions there are is in the files v1.*.mod, of which one is named at a time: go build -modfile=v1.27.mod.
module stoa.dev/tests/kubectl

go 1.26.0
