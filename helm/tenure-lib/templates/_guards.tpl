{{/* Checks that the schema cannot express: values that contradict each other. Each message has the value and the remedy. */}}

{{- define "tenure.guards" -}}
{{- $e := .Values.election -}}
{{- $kind := include "tenure.storeKind" . -}}
{{- if eq ($e.store | default .Values.store) "azure" -}}
  {{- if not .Values.azure.storageAccount -}}
    {{- fail "azure.storageAccount is empty, and store is azure: set it to the name of the storage account" -}}
  {{- end -}}
  {{- if not .Values.azure.container -}}
    {{- fail "azure.container is empty, and store is azure: set it to the name of the blob container" -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $kind "azure") (not (or (include "tenure.workloadIdentity" .) .Values.azure.credentialsSecret .Values.azure.managedIdentity)) -}}
  {{- fail "azure.clientId is empty, and no other Azure sign-in is configured: set it to the client id of the workload identity, or azure.workloadIdentity=true if the ServiceAccount is annotated with one, or azure.credentialsSecret to a Secret, or azure.managedIdentity=true to use the node's identity" -}}
{{- end -}}
{{- if and (eq ($e.store | default .Values.store) "consul") (not .Values.consul.addresses) -}}
  {{- fail "consul.addresses is empty, and store is consul: set it to the addresses of servers or agents, such as consul-server.consul:8501" -}}
{{- end -}}
{{- if and (eq ($e.store | default .Values.store) "etcd") (not .Values.etcd.endpoints) -}}
  {{- fail "etcd.endpoints is empty, and store is etcd: set it to the addresses of the members, such as etcd-0.etcd:2379" -}}
{{- end -}}
{{- if eq ($e.store | default .Values.store) "mongodb" -}}
  {{- if not .Values.mongodb.hosts -}}
    {{- fail "mongodb.hosts is empty, and store is mongodb: set it to the members of the replica set, such as db-0.db:27017" -}}
  {{- end -}}
  {{- if not .Values.mongodb.database -}}
    {{- fail "mongodb.database is empty, and store is mongodb: set it to the name of the database" -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $kind "mongodb") (eq .Values.sidecar.image.repository "ghcr.io/tenure-dev/tenure") -}}
  {{- fail "store is mongodb, and sidecar.image.repository is ghcr.io/tenure-dev/tenure, which does not have it: set it to ghcr.io/tenure-dev/tenure-full" -}}
{{- end -}}
{{- if eq ($e.store | default .Values.store) "postgres" -}}
  {{- if not .Values.postgres.hosts -}}
    {{- fail "postgres.hosts is empty, and store is postgres: set it to the addresses of the server and its standbys, such as db-0.db:5432" -}}
  {{- end -}}
  {{- if not .Values.postgres.database -}}
    {{- fail "postgres.database is empty, and store is postgres: set it to the name of the database" -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $kind "postgres") (not .Values.postgres.credentialsSecret) (not .Values.sidecar.envFrom) (not .Values.sidecar.env) -}}
  {{- fail "postgres.credentialsSecret is empty, and nothing else sets PGUSER: set it to a Secret with PGUSER and PGPASSWORD" -}}
{{- end -}}
{{- if and (eq ($e.store | default .Values.store) "redis") (not .Values.redis.hosts) -}}
  {{- fail "redis.hosts is empty, and store is redis: set it to the addresses of the server and its replicas, such as redis-0.redis:6379" -}}
{{- end -}}
{{- if eq ($e.store | default .Values.store) "s3" -}}
  {{- if not .Values.s3.bucket -}}
    {{- fail "s3.bucket is empty, and store is s3: set it to the name of the bucket" -}}
  {{- end -}}
{{- end -}}
{{- if and (eq ($e.store | default .Values.store) "gcs") (not .Values.gcs.bucket) -}}
  {{- fail "gcs.bucket is empty, and store is gcs: set it to the name of the bucket" -}}
{{- end -}}
{{- if and (eq $kind "s3") (not $e.s3Region) (not $e.s3Endpoint) -}}
  {{- fail "election.s3Region is empty, and store is s3: set it to the region of the bucket, or election.s3Endpoint to a server that is not AWS's" -}}
{{- end -}}
{{- if and (eq ($e.store | default .Values.store) "zookeeper") (not .Values.zookeeper.servers) -}}
  {{- fail "zookeeper.servers is empty, and store is zookeeper: set it to the addresses of the ensemble, such as zk-0.zk:2281" -}}
{{- end -}}
{{- range $name := list "consul" "etcd" "mongodb" "postgres" "redis" "s3" "zookeeper" -}}
  {{- $servers := get $.Values $name -}}
  {{- if and $servers.clientCertificate (not $servers.tlsSecret) -}}
    {{- fail (printf "%s.clientCertificate is true, and %s.tlsSecret is empty: set it to the Secret with tls.crt and tls.key" $name $name) -}}
  {{- end -}}
  {{- if and $servers.tlsSecret (or $e.storeCaFile $e.storeCert $e.storeKey) -}}
    {{- fail (printf "%s.tlsSecret is %s, and election.storeCaFile, storeCert or storeKey is set: set only one of them" $name $servers.tlsSecret) -}}
  {{- end -}}
{{- end -}}
{{- if and $e.kubeRoute (ne $e.kubeRoute .Values.routing.mode) -}}
  {{- fail (printf "election.kubeRoute is %s and routing.mode %s: leave election.kubeRoute empty and set routing.mode=%s, which brings the rights and the Service too" $e.kubeRoute .Values.routing.mode $e.kubeRoute) -}}
{{- end -}}
{{- if and $e.kubeService (ne .Values.routing.mode "endpointslice") (ne .Values.routing.mode "label") -}}
  {{- fail (printf "election.kubeService is %s, and routing.mode %s has no Service for the leader: set routing.mode to endpointslice or label, or leave election.kubeService empty" $e.kubeService .Values.routing.mode) -}}
{{- end -}}
{{- with .Values.routing.previousMode -}}
  {{- if eq . $.Values.routing.mode -}}
    {{- fail (printf "routing.previousMode is %s, as routing.mode is: remove it, or change routing.mode" .) -}}
  {{- end -}}
  {{- $previous := include "tenure.previousServiceName" $ -}}
  {{- if or (eq $previous $e.kubeService) (and $e.kubeService (not $.Values.routing.previousService)) -}}
    {{- fail (printf "routing.previousMode is %s, and election.kubeService may name its Service, whose endpoints the other mode would inherit: set routing.previousService to the name of that Service, and election.kubeService to another or to null" .) -}}
  {{- end -}}
{{- end -}}
{{- if not (include "tenure.port" .) -}}
  {{- fail (printf "election.listen is %s, but the kubelet's probes cannot reach any of these addresses: add \"[::]:4040\"" (toJson $e.listen)) -}}
{{- end -}}
{{- $port := include "tenure.port" . -}}
{{- $local := list -}}
{{- range $e.listen -}}
  {{- if regexMatch (printf "^(0[.]0[.]0[.]0|\\[::\\]|127[.]0[.]0[.]1|localhost):%s$" $port) . -}}{{- $local = append $local . -}}{{- end -}}
{{- end -}}
{{- if not (or $local (include "tenure.hasTls" .)) -}}
  {{- fail (printf "election.listen is %s, but your container and the sidecar's own probes use 127.0.0.1:%s: add \"127.0.0.1:%s\"" (toJson $e.listen) $port $port) -}}
{{- end -}}
{{- if and $e.admin (not (hasPrefix "unix:" $e.admin)) (not $e.adminTokenFile) -}}
  {{- fail (printf "election.adminTokenFile is empty, and election.admin is the address %s: set it to a file mounted by sidecar.volumeMounts, or election.admin to unix:/run/tenure/admin.sock" $e.admin) -}}
{{- end -}}
{{- $own := list -}}
{{- range include "tenure.env" . | fromYamlArray -}}{{- $own = append $own .name -}}{{- end -}}
{{- range .Values.sidecar.env -}}
  {{- if has .name $own -}}
    {{- fail (printf "sidecar.env has %s, which the chart sets: remove it, and set the value under election, azure, consul, etcd, mongodb, postgres, redis, s3, gcs or zookeeper" .name) -}}
  {{- end -}}
{{- end -}}
{{- include "tenure.guards.tls" . -}}
{{- include "tenure.guards.timings" . -}}
{{- end -}}

{{/* One source of certificates, and a port that is free for what needs none. */}}
{{- define "tenure.guards.tls" -}}
{{- $e := .Values.election -}}
{{- $tls := .Values.tls -}}
{{- range $name := list "tlsCert" "tlsKey" "tlsClientCa" -}}
  {{- if and $tls.secretName (get $e $name) -}}
    {{- fail (printf "tls.secretName is %s, and election.%s is %s: set only one of them" $tls.secretName $name (get $e $name)) -}}
  {{- end -}}
{{- end -}}
{{- if and $tls.clientCertificates (not (and $tls.secretName $tls.caKey)) -}}
  {{- fail (printf "tls.clientCertificates is true, and %s is empty: set it, or tls.clientCertificates=false" (empty $tls.secretName | ternary "tls.secretName" "tls.caKey")) -}}
{{- end -}}
{{- if and (include "tenure.hasTls" .) (eq (include "tenure.localPort" .) (include "tenure.port" .)) -}}
  {{- fail (printf "election.listen has port %s for other pods, which requires TLS, and 127.0.0.1 has the same port without: set tls.localPort or election.listen to another" (include "tenure.port" .)) -}}
{{- end -}}
{{- end -}}

{{/* The rules that `tenure run` checks at start, checked before a pod is created. */}}
{{- define "tenure.guards.timings" -}}
{{- $e := .Values.election -}}
{{- $kind := include "tenure.storeKind" . -}}
{{- $lease := include "tenure.milliseconds" $e.leaseDuration | int64 -}}
{{- $deadline := include "tenure.milliseconds" $e.renewDeadline | int64 -}}
{{- $retry := include "tenure.milliseconds" $e.retryPeriod | int64 -}}
{{- $request := include "tenure.milliseconds" $e.requestTimeout | int64 -}}
{{- $needed := add (mul 2 $retry) $request -}}
{{- if lt $deadline $needed -}}
  {{- fail (printf "election.renewDeadline is %s, shorter than 2 × retryPeriod + requestTimeout = %vms, so one failed renewal would end leadership: raise it, or shorten election.retryPeriod or election.requestTimeout" $e.renewDeadline $needed) -}}
{{- end -}}
{{- $margin := max (div $lease 10) 200 -}}
{{- if lt (sub $lease $deadline) $margin -}}
  {{- fail (printf "election.renewDeadline is %s, which leaves less than %vms until the end of election.leaseDuration, %s: lower it to at most %vms, or raise election.leaseDuration" $e.renewDeadline $margin $e.leaseDuration (sub $lease $margin)) -}}
{{- end -}}
{{- if and (has $kind (list "azure" "kubernetes")) (ne (mod $lease 1000) 0) -}}
  {{- fail (printf "election.leaseDuration is %s, but the store %s accepts only whole seconds: set it to %vs" $e.leaseDuration $kind (div (add $lease 999) 1000)) -}}
{{- end -}}
{{- if and (eq $kind "azure") (or (lt $lease 15000) (gt $lease 60000)) -}}
  {{- fail (printf "election.leaseDuration is %s, but Azure accepts 15s to 60s: set it within this range" $e.leaseDuration) -}}
{{- end -}}
{{- if and (eq $kind "gs") (lt $retry 2000) -}}
  {{- fail (printf "election.retryPeriod is %s, and Google Cloud Storage throttles writes of one object beyond about one in a second: set it to at least 2s" $e.retryPeriod) -}}
{{- end -}}
{{- if and $e.health (gt (include "tenure.milliseconds" $e.healthTimeout | int64) (include "tenure.milliseconds" $e.healthInterval | int64)) -}}
  {{- fail (printf "election.healthTimeout is %s, longer than election.healthInterval, %s: lower it" $e.healthTimeout $e.healthInterval) -}}
{{- end -}}
{{- end -}}
