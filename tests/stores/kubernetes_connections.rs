//! The effect of connections that die silently: a firewall or NAT has dropped their state, or the
//! machine of the API server is gone.

use testkit::kubernetes::{kube_server, lease_lock};

use std::net::SocketAddr;

use kube_server::KubeServer;
use lease_lock::{A, lead, outcome, settings, soon};
use tenure::config::{KubeAccess, KubernetesSettings};
use tenure::store::LeaseStore;
use tenure::store::kubernetes::Kubernetes;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections to a server, until all existing ones are silenced without being closed.
async fn relay(listener: TcpListener, server: SocketAddr, silenced: watch::Receiver<u32>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let mut silenced = silenced.clone();
        silenced.mark_unchanged();
        connections.spawn(async move {
            let mut server = TcpStream::connect(server).await.unwrap();
            tokio::select! {
                biased;
                _ = silenced.changed() => std::future::pending().await,
                _ = copy_bidirectional(&mut client, &mut server) => {}
            }
        });
    }
}

#[tokio::test]
async fn connections_that_died_silently_cost_one_renewal() {
    let server = KubeServer::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (silence, silenced) = watch::channel(0);
    let own = settings(&server, "team", "orders");
    let access = KubeAccess { api, ..own.access.clone() };
    let store = Kubernetes::open(&KubernetesSettings { access, ..own }).unwrap();
    let using = async {
        let (held, _) = lead(&store, A).await;
        // Like a watch, which leaves one more connection when it ends.
        let reads = tokio::join!(soon(store.read()), soon(store.read()), soon(store.read()));
        assert!(reads.0.is_ok() && reads.1.is_ok() && reads.2.is_ok());
        soon(store.renew(&held)).await.unwrap();
        silence.send_replace(1);
        assert_eq!(outcome(&soon(store.renew(&held)).await), "unknown: timeout");
        soon(store.renew(&held)).await.expect("over a connection of its own");
    };
    tokio::select! {
        () = relay(listener, server.address, silenced) => panic!("the relay has ended"),
        () = using => {}
    }
}
