//! The wanted transitions of a namespace, from statuses and segments.

use std::collections::HashSet;

use stoa_controller::blocking::on_own_thread;
use stoa_hub::{
    Transition,
    segment::{self, Filter},
};
use stoa_machinery::ApiError;
use stoa_storage::Digest;

use super::{HubService, index, waiting, with_waiting};

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
    /// Hands the wanted transitions to a collector, in no order. A transition may come twice.
    ///
    /// # Errors
    ///
    /// 503 where the log or the Backend is out of reach. A segment that is corrupt is set aside, and is a problem of the answer.
    pub(crate) async fn collect<T: Send + 'static>(
        &self,
        namespace: &str,
        filter: Filter,
        mut collected: T,
        add: fn(&mut T, Transition),
    ) -> Result<Found<T>, ApiError> {
        let permit = self.queries.clone().acquire_owned().await;
        let _permit = permit.map_err(|error| ApiError::internal(error.to_string()))?;
        for row in self.waiting(namespace, &filter).await? {
            add(&mut collected, row);
        }
        let mut problems = Vec::new();
        let mut read = HashSet::<Digest>::new();
        for attempt in 1..=ATTEMPTS {
            let index = index::read(&*self.services.log, namespace).await?;
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
                let filter = filter.clone();
                let work = move || {
                    let done = segment::read(&bytes, &filter, |row| add(&mut collected, row));
                    (collected, done)
                };
                let (back, done) = on_own_thread(work).await;
                collected = back;
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
        let reconcilers = with_waiting(self.reconcilers(Some(namespace)).await?).await;
        let rows = reconcilers.iter().flat_map(waiting);
        Ok(rows.filter(|row| filter.matches(row)).collect())
    }
}
