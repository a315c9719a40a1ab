//! The wanted transitions of a namespace, from statuses and segments.

use std::{cmp::Reverse, collections::HashSet};

use stoa_controller::blocking::on_own_thread;
use stoa_hub::{
    Collector, Transition,
    segment::{self, Filter},
};
use stoa_machinery::ApiError;
use stoa_storage::Digest;

use super::{HubService, index, waiting};

/// How often the index is read again because a segment was replaced meanwhile.
const ATTEMPTS: usize = 3;

/// What a reader has collected.
#[derive(Debug)]
pub(crate) struct Found<T> {
    pub(crate) collected: T,
    /// The segments that cannot be read, in words.
    pub(crate) problems: Vec<String>,
}

impl HubService {
    /// Hands the wanted transitions to a collector, in no order. A transition may come twice. The newest segments come first, and
    /// those before [`Collector::since`] are not read.
    ///
    /// # Errors
    ///
    /// 503 where the log or the Backend is out of reach. A segment that is corrupt is set aside, and is a problem of the answer.
    pub(crate) async fn collect<T: Collector + Send + 'static>(
        &self,
        namespace: &str,
        mut filter: Filter,
        mut collected: T,
    ) -> Result<Found<T>, ApiError> {
        let permit = self.queries.clone().acquire_owned().await;
        let _permit = permit.map_err(|error| ApiError::internal(error.to_string()))?;
        for row in self.waiting(namespace, &filter).await? {
            collected.add(row);
        }
        let mut problems = Vec::new();
        let mut read = HashSet::<Digest>::new();
        for attempt in 1..=ATTEMPTS {
            let mut index = index::read(&*self.services.log, namespace).await?;
            index.segments.sort_by_key(|segment| Reverse(segment.to));
            let mut has_missing = false;
            for of in index.segments {
                let is_wanted = of.from <= filter.times.1 && of.to >= filter.times.0;
                if !is_wanted || read.contains(&of.digest) {
                    continue;
                }
                if !of.set_aside.is_empty() {
                    read.insert(of.digest);
                    problems.push(format!("segment {} is set aside: {}", of.digest, of.set_aside));
                    continue;
                }
                let bytes = match self.bytes(namespace, &of).await? {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) if attempt < ATTEMPTS => {
                        has_missing = true;
                        continue;
                    }
                    Ok(None) => {
                        problems.push(format!("segment {} is absent", of.digest));
                        continue;
                    }
                    Err(why) => {
                        read.insert(of.digest);
                        self.set_aside(namespace, of.digest, &why).await?;
                        problems.push(why);
                        continue;
                    }
                };
                read.insert(of.digest);
                let wanted = filter.clone();
                let work = move || {
                    let done = segment::read(&bytes, &wanted, |row| collected.add(row));
                    let since = collected.since();
                    (collected, since, done)
                };
                let (back, since, done) = on_own_thread(work).await;
                collected = back;
                filter.times.0 = filter.times.0.max(since);
                if let Err(error) = done {
                    let why = error.to_string();
                    self.set_aside(namespace, of.digest, &why).await?;
                    problems.push(format!("segment {}: {why}", of.digest));
                }
            }
            if !has_missing {
                break;
            }
        }
        Ok(Found { collected, problems })
    }

    /// The wanted transitions that wait for the archive.
    async fn waiting(&self, namespace: &str, filter: &Filter) -> Result<Vec<Transition>, ApiError> {
        let names = self.names_of_waiting().await?.remove(namespace).unwrap_or_default();
        let is_wanted = |name: &String| filter.reconciler.as_ref().is_none_or(|wanted| wanted == name);
        let mut found = Vec::new();
        for name in names.into_iter().filter(is_wanted) {
            let Some(reconciler) = self.reconciler(namespace, &name).await? else { continue };
            found.extend(waiting::rows(&reconciler).into_iter().filter(|row| filter.matches(row)));
        }
        Ok(found)
    }
}
