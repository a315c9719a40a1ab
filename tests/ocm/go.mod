// The kinds of Open Cluster Management that tests define in their cluster; see hack/xtask/src/binaries.rs.
module stoa.dev/tests/ocm

go 1.26.0

require open-cluster-management.io/api v1.0.0
