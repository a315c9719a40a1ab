//! Case `api-version-bump`.
//!
//! Reports: pulumi/pulumi-kubernetes#546, hashicorp/terraform-provider-kubernetes#2743.
