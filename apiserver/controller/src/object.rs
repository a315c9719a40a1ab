//! Kinds as Rust types, and the keys of their objects.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

/// A kind that is served here, as a Rust type.
pub trait Kind:
    kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + 'static
{
}

impl<K> Kind for K where
    K: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + 'static
{
}

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
pub type ObjectKey = (String, String);
