//! Reads of one object.

use anyhow::{Result, ensure};

use crate::client::{Call, Client};
use crate::load::{self, Done, Load};
use crate::measure::{Experiment, MeasuredCollection, Turn};
use crate::scene;

/// Clients that get one object after the other, here and there in the collection.
#[derive(Debug)]
pub(crate) struct Gets {
    pub(crate) clients: usize,
    pub(crate) objects: usize,
    pub(crate) load: Load,
}

/// Some object's number; neighbours in time are none in the collection.
pub(crate) fn somewhere(client: usize, count: usize, objects: usize) -> usize {
    (client * 7919 + count * 104_729) % objects
}

impl Experiment for Gets {
    type Ready = Vec<Client>;
    type Output = Vec<Done>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Vec<Client>> {
        target.clients(self.clients).await
    }

    async fn work(&self, target: &MeasuredCollection, _: usize, clients: Vec<Client>) -> Result<Turn<Vec<Done>>> {
        let (collection, objects) = (target.collection.clone(), self.objects);
        load::run(target, clients, self.load, move |client, count| {
            Some(Call::get(format!("{collection}/{}", scene::name(somewhere(client, count, objects)))))
        })
        .await
    }

    async fn check(&self, _: &MeasuredCollection, _: usize, output: Vec<Done>) -> Result<usize> {
        let bytes = output.first().map_or(0, |done| done.answer.wire_bytes());
        for done in output {
            let expected = scene::name(somewhere(done.client, done.number, self.objects));
            let object = done.answer.json()?;
            ensure!(object["metadata"]["name"] == expected, "asked for {expected}, got {object}");
        }
        Ok(bytes)
    }
}
