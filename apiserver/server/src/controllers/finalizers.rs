//! Objects are written by controllers as they were looked at: one that got the name of another since is not that one.

use kube::ResourceExt as _;
use stoa_machinery::{ApiError, registry::Api};

use super::queue;
use crate::kinds::lookup::Kind;

/// Changes an object that was read, as it is by now. Another that has its name since stays as it is: a leader that was
/// suspended may have read what is long gone.
///
/// # Errors
///
/// As for [`Api::update_with`]; 404 when there is another.
pub(super) async fn update_same<K: Kind>(
    api: &Api<K>,
    object: &K,
    mut change: impl FnMut(&mut K) + Send,
) -> Result<K, ApiError> {
    let ((namespace, name), uid) = (queue::key_of(object), object.meta().uid.clone());
    let change = |current: &mut K| {
        if current.meta().uid != uid {
            return Err(ApiError::not_found(&K::group(&()), &K::plural(&()), &name));
        }
        change(current);
        Ok(())
    };
    api.update_with(&namespace, &name, change).await
}

/// Takes a finalizer of ours away from an object that was read; one that is gone needs nothing.
///
/// # Errors
///
/// When it cannot be written.
pub(super) async fn let_go<K: Kind>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), ApiError> {
    match update_same(api, object, |current| current.finalizers_mut().retain(|f| f != finalizer)).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_machinery::registry::DeleteOptions;
    use stoa_types::{DeletionPolicy, Stack, labels};

    use super::*;
    use crate::{controllers::runs::tests::World, runs::runner};

    #[tokio::test]
    async fn what_has_got_the_name_of_another_since_stays_as_it_is() {
        let world = World::with_runner(runner::unreachable()).await;
        let stacks = world.registry.api::<Stack>();
        stacks.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        let read = stacks.get("shop", "web").await.unwrap();
        let_go(&stacks, &read, labels::INFRASTRUCTURE_FINALIZER).await.unwrap();
        assert!(stacks.get_opt("shop", "web").await.unwrap().is_none(), "it is let go");
        let_go(&stacks, &read, labels::INFRASTRUCTURE_FINALIZER).await.unwrap();

        world.create("Stack", "web", json!({"project": "web"})).await;
        stacks.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        let another = stacks.get("shop", "web").await.unwrap();
        let_go(&stacks, &read, labels::INFRASTRUCTURE_FINALIZER).await.unwrap();
        let orphan = |stack: &mut Stack| stack.spec.deletion_policy = Some(DeletionPolicy::Orphan);
        assert_eq!(update_same(&stacks, &read, orphan).await.unwrap_err().code(), 404);
        assert_eq!(stacks.get("shop", "web").await.unwrap(), another);
    }
}
