//! Deletion of Releases and Resources: the history of a Stack stays as long as the Stack.

use kube::ResourceExt as _;
use stoa_controller::object::Kind;
use stoa_machinery::{ApiError, RequestContext};
use stoa_types::Stack;

use crate::{cluster, errors, kind::Surroundings};

/// The objects that are read before a record may be deleted.
#[derive(Debug)]
pub(crate) struct Records(pub(crate) Surroundings);

impl Records {
    /// Allows to delete what tells of a stack, given by name and uid, that is gone or going.
    ///
    /// # Errors
    ///
    /// 403 for whoever else asks.
    pub(crate) async fn check_delete<K: Kind>(
        &self,
        context: &RequestContext,
        record: &K,
        (stack, uid): (&str, Option<&str>),
    ) -> Result<(), ApiError> {
        if context.is_internal() {
            return Ok(());
        }
        let namespace = record.namespace().unwrap_or_default();
        let found = self.0.lookup.api::<Stack>()?.get_opt(&namespace, stack).await?;
        let is_here = |s: &Stack| {
            s.metadata.deletion_timestamp.is_none() && uid.is_none_or(|uid| s.uid().as_deref() == Some(uid))
        };
        if !found.as_ref().is_some_and(is_here) {
            return Ok(());
        }
        if cluster::is_emptied(&*self.0.cluster, &namespace).await? {
            return Ok(());
        }
        let why = format!("it is part of the history of stack {stack:?}; delete the stack first");
        Err(errors::forbidden::<K>(&record.name_any(), why))
    }
}
