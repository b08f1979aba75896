# The image of Tenure: one static binary and the roots of trust, nothing else.
#
# Of use to `docker buildx build` and to `buildah build`. docs/kubernetes/image.md says how to build it
# for both architectures, how to get the same bytes again, and how to run it.

# Pin it by digest where the same bytes are wanted again: `--build-arg RUST=…@sha256:…`.
ARG RUST=docker.io/library/rust:1.95.0-slim-bookworm

# Runs on the machine's own architecture, and compiles across where another is wanted.
FROM --platform=$BUILDPLATFORM ${RUST} AS build
ARG TARGETARCH
WORKDIR /build

# The versions are those of the base image's Debian; a pinned one would be gone with its next fix.
# hadolint ignore=DL3008
RUN set -eu; \
    case "$TARGETARCH" in \
      amd64) rust=x86_64-unknown-linux-gnu; gnu=x86-64-linux-gnu; gcc=x86_64-linux-gnu-gcc ;; \
      arm64) rust=aarch64-unknown-linux-gnu; gnu=aarch64-linux-gnu; gcc=aarch64-linux-gnu-gcc ;; \
      *) echo "Tenure is built for amd64 and arm64, not for '$TARGETARCH'" >&2; exit 1 ;; \
    esac; \
    printf 'export %s\n' "CARGO_BUILD_TARGET=$rust" "TARGET_CC=$gcc" > /across; \
    if [ "$TARGETARCH" != "$(dpkg --print-architecture)" ]; then \
      apt-get update; \
      apt-get install -y --no-install-recommends "gcc-$gnu" "libc6-dev-$TARGETARCH-cross"; \
      rm -rf /var/lib/apt/lists/*; \
      rustup target add "$rust"; \
    fi

# The sources of the dependencies are a layer of their own, which only Cargo.lock makes anew.
COPY build.rs Cargo.toml Cargo.lock ./
COPY benches/bare_axum.rs benches/
# The workspace's other members only have to be named; nothing of them is built.
COPY simulator/Cargo.toml simulator/
COPY testkit/Cargo.toml testkit/
RUN . /across && mkdir src simulator/src testkit/src \
    && touch src/lib.rs src/main.rs simulator/src/lib.rs testkit/src/lib.rs \
    && cargo fetch --locked --target "$CARGO_BUILD_TARGET"

# Stores that the default build leaves out: `--build-arg FEATURES=mongodb` makes the image tenure-full.
ARG FEATURES=

# Compiled, they stay in a cache beside the layers. Our own sources are never taken from it: cargo
# goes by their dates, and those of a checkout may be older than what another one left there.
# Static, with the libc that the tests run with: it reads /etc/hosts and asks name servers by itself.
COPY src src
RUN --mount=type=cache,id=tenure-target,target=/build/target,sharing=locked \
    set -eu; . /across; \
    find src -type f -exec touch {} +; \
    export RUSTFLAGS="-C target-feature=+crt-static -C linker=$TARGET_CC --remap-path-prefix=$CARGO_HOME/registry/src=crates"; \
    cargo build --release --locked --offline --bin tenure --features "$FEATURES"; \
    install -D "target/$CARGO_BUILD_TARGET/release/tenure" /image/tenure

# With one date for all, the last stage's only layer depends on its content alone.
COPY LICENSE-APACHE LICENSE-MIT /image/licenses/
ARG SOURCE_DATE_EPOCH=0
RUN install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt \
    && find /image -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

FROM scratch
COPY --from=build /image/ /
ARG VERSION=0.1.0
ARG REVISION
ARG CREATED
ARG SOURCE
LABEL org.opencontainers.image.title="Tenure" \
      org.opencontainers.image.description="Leader election for services in any language: a sidecar that never lies about who leads" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
EXPOSE 4040
# So that `kubectl exec POD -c tenure -- tenure status` finds it.
ENV PATH=/
USER 65532:65532
ENTRYPOINT ["/tenure"]
CMD ["run"]
