//! `GET /api/backup`: a copy of the store while it is in use. On the control socket only.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use warp::http::Method;
use warp::http::header::{CONTENT_TYPE, HeaderValue};
use warp::reply::Reply;
use warp::{Filter, path};

use super::routing::{
    ApiResult, Routes, one_of, operator, reject_other_methods, require_admin, with_app,
};
use domain::audit::{Action, Actor};
use engine::app::App;
use store::audit;
use store::crash_injection::{CrashPlan, CrashPoint};

/// How many chunks may wait for the reader?
const BACKLOG: usize = 8;

/// How long may the reader take nothing? As long as it reads, the store keeps its snapshot.
const PATIENCE: Duration = Duration::from_secs(60);

/// Routes of `/api/backup`.
pub fn routes(app: &App) -> Routes {
    let backup = path!("api" / "backup").boxed();
    one_of([
        backup
            .clone()
            .and(require_admin(app, Method::GET))
            .and(operator(app))
            .and(with_app(app))
            .then(send)
            .boxed(),
        reject_other_methods(&backup, [Method::GET]),
    ])
}

/// The status is sent before the store is read to its end: what fails then breaks the answer off, and
/// a copy without its end is known as such.
async fn send(by: Actor, app: App) -> ApiResult {
    // It holds all there is: whoever takes it is noted before they have it.
    let (deed, now) = (by.audit_event(Action::BackupTaken, "store"), app.now());
    let noted = app.store.write(move |tx| audit::append(tx, &deed, now));
    noted.await?;
    let (sender, mut chunks) = mpsc::channel(BACKLOG);
    let reader = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut pipe = Pipe {
            sender: sender.clone(),
            reader,
            crash: app.crash_plan.clone(),
        };
        match app.store.back_up(app.now(), &mut pipe) {
            Ok(_) => tracing::info!("A backup was taken."),
            Err(error) => {
                tracing::error!(%error, "A backup was not taken to its end.");
                let broken = io::Error::other("the backup broke off");
                // Whoever reads it may be gone.
                let _ = sender.try_send(Err(broken));
            }
        }
    });
    let chunks = stream::poll_fn(move |cx| chunks.poll_recv(cx));
    let mut response = warp::reply::stream(chunks).into_response();
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// Leads from the thread that reads the store to the connection.
struct Pipe {
    sender: mpsc::Sender<io::Result<Bytes>>,
    reader: Handle,
    crash: CrashPlan,
}

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let chunk = Ok(Bytes::copy_from_slice(bytes));
        let sent = async { timeout(PATIENCE, self.sender.send(chunk)).await };
        match self.reader.block_on(sent) {
            Ok(Ok(())) => {
                self.crash.crash_if_planned(CrashPoint::BackupHalfSent);
                Ok(bytes.len())
            }
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "nobody took it for a minute",
            )),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
