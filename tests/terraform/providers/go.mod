// The providers that tests of the Terraform client run, each with versions of its own; see hack/xtask/src/binaries.rs.
module stoa.dev/tests/terraform/providers

go 1.26.0
