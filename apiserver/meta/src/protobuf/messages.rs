//! The messages of Kubernetes' own kinds that clients send in protobuf.
//!
//! Taken from the crate `k8s-pb` 0.9.0, which has those of all kinds and takes longer to build than most crates. Its modules are
//! named as there; docs and messages that nothing reads are left out. Copyright The Kubernetes Authors and the authors of
//! `k8s-pb`, Apache-2.0.
#![allow(missing_docs, unreachable_pub, reason = "generated code; the documentation is in Kubernetes")]

pub mod api {
    pub mod authentication {
        pub mod v1 {
            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct ExtraValue {
                #[prost(string, repeated, tag = "1")]
                pub items: Vec<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SelfSubjectReview {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(message, optional, tag = "2")]
                pub status: Option<SelfSubjectReviewStatus>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SelfSubjectReviewStatus {
                #[prost(message, optional, tag = "1")]
                pub user_info: Option<UserInfo>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct UserInfo {
                #[prost(string, optional, tag = "1")]
                pub username: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub uid: Option<String>,
                #[prost(string, repeated, tag = "3")]
                pub groups: Vec<String>,
                #[prost(btree_map = "string, message", tag = "4")]
                pub extra: std::collections::BTreeMap<String, ExtraValue>,
            }
        }
    }
    pub mod authorization {
        pub mod v1 {
            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct ExtraValue {
                #[prost(string, repeated, tag = "1")]
                pub items: Vec<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct FieldSelectorAttributes {
                #[prost(string, optional, tag = "1")]
                pub raw_selector: Option<String>,
                #[prost(message, repeated, tag = "2")]
                pub requirements: Vec<super::super::super::apimachinery::pkg::apis::meta::v1::FieldSelectorRequirement>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct LabelSelectorAttributes {
                #[prost(string, optional, tag = "1")]
                pub raw_selector: Option<String>,
                #[prost(message, repeated, tag = "2")]
                pub requirements: Vec<super::super::super::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct LocalSubjectAccessReview {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(message, optional, tag = "2")]
                pub spec: Option<SubjectAccessReviewSpec>,
                #[prost(message, optional, tag = "3")]
                pub status: Option<SubjectAccessReviewStatus>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct NonResourceAttributes {
                #[prost(string, optional, tag = "1")]
                pub path: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub verb: Option<String>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct NonResourceRule {
                #[prost(string, repeated, tag = "1")]
                pub verbs: Vec<String>,
                #[prost(string, repeated, tag = "2")]
                pub non_resource_ur_ls: Vec<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct ResourceAttributes {
                #[prost(string, optional, tag = "1")]
                pub namespace: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub verb: Option<String>,
                #[prost(string, optional, tag = "3")]
                pub group: Option<String>,
                #[prost(string, optional, tag = "4")]
                pub version: Option<String>,
                #[prost(string, optional, tag = "5")]
                pub resource: Option<String>,
                #[prost(string, optional, tag = "6")]
                pub subresource: Option<String>,
                #[prost(string, optional, tag = "7")]
                pub name: Option<String>,
                #[prost(message, optional, tag = "8")]
                pub field_selector: Option<FieldSelectorAttributes>,
                #[prost(message, optional, tag = "9")]
                pub label_selector: Option<LabelSelectorAttributes>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct ResourceRule {
                #[prost(string, repeated, tag = "1")]
                pub verbs: Vec<String>,
                #[prost(string, repeated, tag = "2")]
                pub api_groups: Vec<String>,
                #[prost(string, repeated, tag = "3")]
                pub resources: Vec<String>,
                #[prost(string, repeated, tag = "4")]
                pub resource_names: Vec<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SelfSubjectAccessReview {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(message, optional, tag = "2")]
                pub spec: Option<SelfSubjectAccessReviewSpec>,
                #[prost(message, optional, tag = "3")]
                pub status: Option<SubjectAccessReviewStatus>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SelfSubjectAccessReviewSpec {
                #[prost(message, optional, tag = "1")]
                pub resource_attributes: Option<ResourceAttributes>,
                #[prost(message, optional, tag = "2")]
                pub non_resource_attributes: Option<NonResourceAttributes>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SelfSubjectRulesReview {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(message, optional, tag = "2")]
                pub spec: Option<SelfSubjectRulesReviewSpec>,
                #[prost(message, optional, tag = "3")]
                pub status: Option<SubjectRulesReviewStatus>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct SelfSubjectRulesReviewSpec {
                #[prost(string, optional, tag = "1")]
                pub namespace: Option<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SubjectAccessReview {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(message, optional, tag = "2")]
                pub spec: Option<SubjectAccessReviewSpec>,
                #[prost(message, optional, tag = "3")]
                pub status: Option<SubjectAccessReviewStatus>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SubjectAccessReviewSpec {
                #[prost(message, optional, tag = "1")]
                pub resource_attributes: Option<ResourceAttributes>,
                #[prost(message, optional, tag = "2")]
                pub non_resource_attributes: Option<NonResourceAttributes>,
                #[prost(string, optional, tag = "3")]
                pub user: Option<String>,
                #[prost(string, repeated, tag = "4")]
                pub groups: Vec<String>,
                #[prost(btree_map = "string, message", tag = "5")]
                pub extra: std::collections::BTreeMap<String, ExtraValue>,
                #[prost(string, optional, tag = "6")]
                pub uid: Option<String>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct SubjectAccessReviewStatus {
                #[prost(bool, optional, tag = "1")]
                pub allowed: Option<bool>,
                #[prost(bool, optional, tag = "4")]
                pub denied: Option<bool>,
                #[prost(string, optional, tag = "2")]
                pub reason: Option<String>,
                #[prost(string, optional, tag = "3")]
                pub evaluation_error: Option<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct SubjectRulesReviewStatus {
                #[prost(message, repeated, tag = "1")]
                pub resource_rules: Vec<ResourceRule>,
                #[prost(message, repeated, tag = "2")]
                pub non_resource_rules: Vec<NonResourceRule>,
                #[prost(bool, optional, tag = "3")]
                pub incomplete: Option<bool>,
                #[prost(string, optional, tag = "4")]
                pub evaluation_error: Option<String>,
            }
        }
    }
    pub mod core {
        pub mod v1 {
            #[derive(Clone, PartialEq, prost::Message)]
            pub struct ConfigMap {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(bool, optional, tag = "4")]
                pub immutable: Option<bool>,
                #[prost(btree_map = "string, string", tag = "2")]
                pub data: std::collections::BTreeMap<String, String>,
                #[prost(btree_map = "string, bytes", tag = "3")]
                pub binary_data: std::collections::BTreeMap<String, Vec<u8>>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct Event {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(message, optional, tag = "2")]
                pub involved_object: Option<ObjectReference>,
                #[prost(string, optional, tag = "3")]
                pub reason: Option<String>,
                #[prost(string, optional, tag = "4")]
                pub message: Option<String>,
                #[prost(message, optional, tag = "5")]
                pub source: Option<EventSource>,
                #[prost(message, optional, tag = "6")]
                pub first_timestamp: Option<super::super::super::apimachinery::pkg::apis::meta::v1::Time>,
                #[prost(message, optional, tag = "7")]
                pub last_timestamp: Option<super::super::super::apimachinery::pkg::apis::meta::v1::Time>,
                #[prost(int32, optional, tag = "8")]
                pub count: Option<i32>,
                #[prost(string, optional, tag = "9")]
                pub r#type: Option<String>,
                #[prost(message, optional, tag = "10")]
                pub event_time: Option<super::super::super::apimachinery::pkg::apis::meta::v1::MicroTime>,
                #[prost(message, optional, tag = "11")]
                pub series: Option<EventSeries>,
                #[prost(string, optional, tag = "12")]
                pub action: Option<String>,
                #[prost(message, optional, tag = "13")]
                pub related: Option<ObjectReference>,
                #[prost(string, optional, tag = "14")]
                pub reporting_component: Option<String>,
                #[prost(string, optional, tag = "15")]
                pub reporting_instance: Option<String>,
            }

            #[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
            pub struct EventSeries {
                #[prost(int32, optional, tag = "1")]
                pub count: Option<i32>,
                #[prost(message, optional, tag = "2")]
                pub last_observed_time: Option<super::super::super::apimachinery::pkg::apis::meta::v1::MicroTime>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct EventSource {
                #[prost(string, optional, tag = "1")]
                pub component: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub host: Option<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct Namespace {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(message, optional, tag = "2")]
                pub spec: Option<NamespaceSpec>,
                #[prost(message, optional, tag = "3")]
                pub status: Option<NamespaceStatus>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct NamespaceCondition {
                #[prost(string, optional, tag = "1")]
                pub r#type: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub status: Option<String>,
                #[prost(message, optional, tag = "4")]
                pub last_transition_time: Option<super::super::super::apimachinery::pkg::apis::meta::v1::Time>,
                #[prost(string, optional, tag = "5")]
                pub reason: Option<String>,
                #[prost(string, optional, tag = "6")]
                pub message: Option<String>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct NamespaceSpec {
                #[prost(string, repeated, tag = "1")]
                pub finalizers: Vec<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct NamespaceStatus {
                #[prost(string, optional, tag = "1")]
                pub phase: Option<String>,
                #[prost(message, repeated, tag = "2")]
                pub conditions: Vec<NamespaceCondition>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct ObjectReference {
                #[prost(string, optional, tag = "1")]
                pub kind: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub namespace: Option<String>,
                #[prost(string, optional, tag = "3")]
                pub name: Option<String>,
                #[prost(string, optional, tag = "4")]
                pub uid: Option<String>,
                #[prost(string, optional, tag = "5")]
                pub api_version: Option<String>,
                #[prost(string, optional, tag = "6")]
                pub resource_version: Option<String>,
                #[prost(string, optional, tag = "7")]
                pub field_path: Option<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct Secret {
                #[prost(message, optional, tag = "1")]
                pub metadata: Option<super::super::super::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
                #[prost(bool, optional, tag = "5")]
                pub immutable: Option<bool>,
                #[prost(btree_map = "string, bytes", tag = "2")]
                pub data: std::collections::BTreeMap<String, Vec<u8>>,
                #[prost(btree_map = "string, string", tag = "4")]
                pub string_data: std::collections::BTreeMap<String, String>,
                #[prost(string, optional, tag = "3")]
                pub r#type: Option<String>,
            }
        }
    }
}
pub mod apimachinery {
    pub mod pkg {
        pub mod apis {
            pub mod meta {
                pub mod v1 {
                    #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
                    pub struct FieldSelectorRequirement {
                        #[prost(string, optional, tag = "1")]
                        pub key: Option<String>,
                        #[prost(string, optional, tag = "2")]
                        pub operator: Option<String>,
                        #[prost(string, repeated, tag = "3")]
                        pub values: Vec<String>,
                    }

                    #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
                    pub struct FieldsV1 {
                        #[prost(bytes = "vec", optional, tag = "1")]
                        pub raw: Option<Vec<u8>>,
                    }

                    #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
                    pub struct LabelSelectorRequirement {
                        #[prost(string, optional, tag = "1")]
                        pub key: Option<String>,
                        #[prost(string, optional, tag = "2")]
                        pub operator: Option<String>,
                        #[prost(string, repeated, tag = "3")]
                        pub values: Vec<String>,
                    }

                    #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
                    pub struct ManagedFieldsEntry {
                        #[prost(string, optional, tag = "1")]
                        pub manager: Option<String>,
                        #[prost(string, optional, tag = "2")]
                        pub operation: Option<String>,
                        #[prost(string, optional, tag = "3")]
                        pub api_version: Option<String>,
                        #[prost(message, optional, tag = "4")]
                        pub time: Option<Time>,
                        #[prost(string, optional, tag = "6")]
                        pub fields_type: Option<String>,
                        #[prost(message, optional, tag = "7")]
                        pub fields_v1: Option<FieldsV1>,
                        #[prost(string, optional, tag = "8")]
                        pub subresource: Option<String>,
                    }

                    #[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
                    pub struct MicroTime {
                        #[prost(int64, optional, tag = "1")]
                        pub seconds: Option<i64>,
                        #[prost(int32, optional, tag = "2")]
                        pub nanos: Option<i32>,
                    }

                    #[derive(Clone, PartialEq, prost::Message)]
                    pub struct ObjectMeta {
                        #[prost(string, optional, tag = "1")]
                        pub name: Option<String>,
                        #[prost(string, optional, tag = "2")]
                        pub generate_name: Option<String>,
                        #[prost(string, optional, tag = "3")]
                        pub namespace: Option<String>,
                        #[prost(string, optional, tag = "4")]
                        pub self_link: Option<String>,
                        #[prost(string, optional, tag = "5")]
                        pub uid: Option<String>,
                        #[prost(string, optional, tag = "6")]
                        pub resource_version: Option<String>,
                        #[prost(int64, optional, tag = "7")]
                        pub generation: Option<i64>,
                        #[prost(message, optional, tag = "8")]
                        pub creation_timestamp: Option<Time>,
                        #[prost(message, optional, tag = "9")]
                        pub deletion_timestamp: Option<Time>,
                        #[prost(int64, optional, tag = "10")]
                        pub deletion_grace_period_seconds: Option<i64>,
                        #[prost(btree_map = "string, string", tag = "11")]
                        pub labels: std::collections::BTreeMap<String, String>,
                        #[prost(btree_map = "string, string", tag = "12")]
                        pub annotations: std::collections::BTreeMap<String, String>,
                        #[prost(message, repeated, tag = "13")]
                        pub owner_references: Vec<OwnerReference>,
                        #[prost(string, repeated, tag = "14")]
                        pub finalizers: Vec<String>,
                        #[prost(message, repeated, tag = "17")]
                        pub managed_fields: Vec<ManagedFieldsEntry>,
                    }

                    #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
                    pub struct OwnerReference {
                        #[prost(string, optional, tag = "5")]
                        pub api_version: Option<String>,
                        #[prost(string, optional, tag = "1")]
                        pub kind: Option<String>,
                        #[prost(string, optional, tag = "3")]
                        pub name: Option<String>,
                        #[prost(string, optional, tag = "4")]
                        pub uid: Option<String>,
                        #[prost(bool, optional, tag = "6")]
                        pub controller: Option<bool>,
                        #[prost(bool, optional, tag = "7")]
                        pub block_owner_deletion: Option<bool>,
                    }

                    #[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
                    pub struct Time {
                        #[prost(int64, optional, tag = "1")]
                        pub seconds: Option<i64>,
                        #[prost(int32, optional, tag = "2")]
                        pub nanos: Option<i32>,
                    }
                }
            }
        }
        pub mod runtime {
            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct TypeMeta {
                #[prost(string, optional, tag = "1")]
                pub api_version: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub kind: Option<String>,
            }

            #[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
            pub struct Unknown {
                #[prost(message, optional, tag = "1")]
                pub type_meta: Option<TypeMeta>,
                #[prost(bytes = "vec", optional, tag = "2")]
                pub raw: Option<Vec<u8>>,
                #[prost(string, optional, tag = "3")]
                pub content_encoding: Option<String>,
                #[prost(string, optional, tag = "4")]
                pub content_type: Option<String>,
            }
        }
    }
}
