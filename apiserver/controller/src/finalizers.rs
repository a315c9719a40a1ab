//! Writes of an object as a controller read it: a later object of the same name stays as it is.

use kube::ResourceExt as _;
use stoa_machinery::{ApiError, registry::Api};

use super::queue;
use crate::object::Kind;

/// Changes an object that was read, as it is by now. Another that has its name since stays as it is: a leader that was
/// suspended may have read what is long gone.
///
/// # Errors
///
/// As for [`Api::update_with`]; 404 when there is another.
pub async fn update_same<K: Kind>(
    api: &Api<K>,
    object: &K,
    mut change: impl FnMut(&mut K) + Send,
) -> Result<K, ApiError> {
    let (namespace, name) = queue::key_of(object);
    let read = object.meta().uid.clone();
    let change = |current: &mut K| require_same(read.as_deref(), &name, current).map(|()| change(current));
    api.update_with(&namespace, &name, change).await
}

/// The same for its status.
///
/// # Errors
///
/// As for [`Api::update_status_with`]; 404 when there is another.
pub async fn update_status_of_same<K: Kind>(
    api: &Api<K>,
    object: &K,
    mut change: impl FnMut(&mut K) + Send,
) -> Result<K, ApiError> {
    let (namespace, name) = queue::key_of(object);
    let read = object.meta().uid.clone();
    let change = |current: &mut K| require_same(read.as_deref(), &name, current).map(|()| change(current));
    api.update_status_with(&namespace, &name, change).await
}

fn require_same<K: Kind>(read: Option<&str>, name: &str, current: &K) -> Result<(), ApiError> {
    if current.meta().uid.as_deref() == read {
        return Ok(());
    }
    Err(ApiError::not_found(&K::group(&()), &K::plural(&()), name))
}

/// Takes a finalizer of ours away from an object that was read; one that is gone needs nothing.
///
/// # Errors
///
/// When it cannot be written.
pub async fn remove_finalizer<K: Kind>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), ApiError> {
    let written = update_same(api, object, |current| current.finalizers_mut().retain(|f| f != finalizer)).await;
    queue::unless_gone(written).map(drop)
}

#[cfg(test)]
mod tests {
    use stoa_machinery::registry::DeleteOptions;

    use super::*;
    use crate::testing::{Widget, widget, widgets};

    const FINALIZER: &str = "example.dev/content";

    #[tokio::test]
    async fn writes_leave_another_object_of_the_same_name() {
        let widgets = widgets().await.api::<Widget>();
        let mut web = widget("web");
        web.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        widgets.create(&web).await.unwrap();
        widgets.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        let read = widgets.get("shop", "web").await.unwrap();
        remove_finalizer(&widgets, &read, FINALIZER).await.unwrap();
        assert!(widgets.get_opt("shop", "web").await.unwrap().is_none(), "nothing else keeps it");
        remove_finalizer(&widgets, &read, FINALIZER).await.unwrap();

        widgets.create(&web).await.unwrap();
        widgets.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        let another = widgets.get("shop", "web").await.unwrap();
        remove_finalizer(&widgets, &read, FINALIZER).await.unwrap();
        let grow = |widget: &mut Widget| widget.spec.size += 1;
        assert_eq!(update_same(&widgets, &read, grow).await.unwrap_err().code(), 404);
        assert_eq!(widgets.get("shop", "web").await.unwrap(), another);
    }
}
