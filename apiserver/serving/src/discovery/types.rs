//! The types of discovery, their fields in the order in which Go writes them.
//!
//! Follows `k8s.io/apimachinery/pkg/apis/meta/v1` and `k8s.io/api/apidiscovery/v2`, whose names they have.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TypeMeta {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
}

impl TypeMeta {
    pub(super) fn v1(kind: &'static str) -> Self {
        Self { kind, api_version: "v1" }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct APIVersions<'a> {
    #[serde(flatten)]
    pub(super) type_meta: TypeMeta,
    pub(super) versions: Vec<&'a str>,
    /// Addresses that depend on who asks, of which there are none.
    #[serde(rename = "serverAddressByClientCIDRs")]
    pub(super) server_address_by_client_cidrs: [(); 0],
}

#[derive(Debug, Serialize)]
pub(super) struct APIGroupList<'a> {
    #[serde(flatten)]
    pub(super) type_meta: TypeMeta,
    pub(super) groups: Vec<APIGroup<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct APIGroup<'a> {
    /// Left out in lists.
    #[serde(flatten)]
    pub(super) type_meta: Option<TypeMeta>,
    pub(super) name: &'a str,
    pub(super) versions: Vec<GroupVersionForDiscovery<'a>>,
    pub(super) preferred_version: Option<GroupVersionForDiscovery<'a>>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupVersionForDiscovery<'a> {
    pub(super) group_version: String,
    pub(super) version: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct APIResourceList<'a> {
    #[serde(flatten)]
    pub(super) type_meta: TypeMeta,
    pub(super) group_version: String,
    pub(super) resources: Vec<APIResource<'a>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct APIResource<'a> {
    pub(super) name: String,
    pub(super) singular_name: &'a str,
    pub(super) namespaced: bool,
    /// Of what is answered, where that is not the list's.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    pub(super) verbs: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) short_names: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) categories: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_version_hash: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct APIGroupDiscoveryList<'a> {
    #[serde(flatten)]
    pub(super) type_meta: TypeMeta,
    pub(super) metadata: Metadata<'a>,
    pub(super) items: Vec<APIGroupDiscovery<'a>>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct APIGroupDiscovery<'a> {
    pub(super) metadata: Metadata<'a>,
    pub(super) versions: Vec<APIVersionDiscovery<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct APIVersionDiscovery<'a> {
    pub(super) version: &'a str,
    pub(super) resources: Vec<APIResourceDiscovery<'a>>,
    pub(super) freshness: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct APIResourceDiscovery<'a> {
    pub(super) resource: &'a str,
    pub(super) response_kind: GroupVersionKind<'a>,
    pub(super) scope: &'static str,
    pub(super) singular_resource: &'a str,
    pub(super) verbs: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) short_names: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) categories: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) subresources: Vec<APISubresourceDiscovery<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct APISubresourceDiscovery<'a> {
    pub(super) subresource: &'a str,
    pub(super) response_kind: GroupVersionKind<'a>,
    pub(super) verbs: Vec<&'a str>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct GroupVersionKind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}
