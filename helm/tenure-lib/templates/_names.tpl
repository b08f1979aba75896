{{/*
Names. Every template of this library takes a context with the structure of a chart's own: `.Values` with the
values of values.yaml, `.Release` and `.Chart`. A chart that depends on it under the alias `tenure` passes
`set .Subcharts.tenure "Parent" .Chart`.
*/}}

{{/*
The name of the chart, or its alias: two charts of one release never have the same. The library takes that of
the chart that uses it.
*/}}
{{- define "tenure.name" -}}
{{- if .Values.nameOverride -}}
{{- .Values.nameOverride -}}
{{- else if .Parent -}}
{{- .Parent.Name -}}
{{- else if ne .Chart.Type "library" -}}
{{- .Chart.Name -}}
{{- else -}}
{{- fail "the context has no Parent, and two charts of one release would share an election: pass (set .Subcharts.tenure \"Parent\" .Chart) to the templates of tenure-lib, or set fullnameOverride" -}}
{{- end -}}
{{- end -}}

{{/*
The base of all names, as `helm create` has it: the release and the chart, or the release alone if it
contains the chart's name. 52 characters leave room for the suffixes of derived names; a hash keeps longer
names apart.
*/}}
{{- define "tenure.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "tenure.name" . -}}
{{- $whole := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- if gt (len $whole) 52 -}}
{{- printf "%s-%s" (trunc 43 $whole | trimSuffix "-") (sha256sum $whole | trunc 8) -}}
{{- else -}}
{{- $whole -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name that candidates compete for. */}}
{{- define "tenure.election" -}}
{{- .Values.election.election | default (include "tenure.fullname" .) -}}
{{- end -}}

{{/* The Service that follows the leader. */}}
{{- define "tenure.leaderServiceName" -}}
{{- .Values.election.kubeService | default (include "tenure.leaderServiceOf" (dict "context" . "mode" .Values.routing.mode)) -}}
{{- end -}}

{{/* The Service of routing.previousMode. */}}
{{- define "tenure.previousServiceName" -}}
{{- .Values.routing.previousService | default (include "tenure.leaderServiceOf" (dict "context" . "mode" .Values.routing.previousMode)) -}}
{{- end -}}

{{/*
The usual name of a mode's Service. Each mode has its own, so that a change of the mode leaves no endpoints of
the other one behind the Service. Takes (dict "context" . "mode" MODE).
*/}}
{{- define "tenure.leaderServiceOf" -}}
{{- printf "%s-%s" (include "tenure.fullname" .context) (eq .mode "endpointslice" | ternary "leader-ip" "leader") -}}
{{- end -}}

{{/* The Service whose EndpointSlice pods of this mode, or of the previous one, write; empty if there is none. */}}
{{- define "tenure.sliceServiceName" -}}
{{- if eq .Values.routing.mode "endpointslice" -}}
{{- include "tenure.leaderServiceName" . -}}
{{- else if eq .Values.routing.previousMode "endpointslice" -}}
{{- include "tenure.previousServiceName" . -}}
{{- end -}}
{{- end -}}

{{/* The URL of the store. */}}
{{- define "tenure.storeUrl" -}}
{{- $store := .Values.election.store | default .Values.store -}}
{{- if eq $store "kubernetes" -}}
kubernetes:{{ include "tenure.fullname" . }}
{{- else if eq $store "azure" -}}
azure://{{ .Values.azure.storageAccount }}/{{ .Values.azure.container }}
{{- else if eq $store "consul" -}}
consul://{{ join "," .Values.consul.addresses }}/{{ .Values.consul.prefix | default (printf "tenure/%s" .Release.Namespace) }}
{{- else if eq $store "etcd" -}}
etcd://{{ join "," .Values.etcd.endpoints }}/{{ .Values.etcd.prefix | default (printf "tenure/%s" .Release.Namespace) }}
{{- else if eq $store "mongodb" -}}
{{- $hosts := list -}}
{{- range .Values.mongodb.hosts -}}
{{- $hosts = append $hosts (regexMatch ":[0-9]+$" . | ternary . (printf "%s:27017" .)) -}}
{{- end -}}
mongodb://{{ join "," $hosts }}/{{ .Values.mongodb.database }}
{{- else if eq $store "postgres" -}}
{{- $hosts := list -}}
{{- range .Values.postgres.hosts -}}
{{- $hosts = append $hosts (regexMatch ":[0-9]+$" . | ternary . (printf "%s:5432" .)) -}}
{{- end -}}
postgres://{{ join "," $hosts }}/{{ .Values.postgres.database }}
{{- else if eq $store "redis" -}}
{{- $hosts := list -}}
{{- range .Values.redis.hosts -}}
{{- $hosts = append $hosts (regexMatch ":[0-9]+$" . | ternary . (printf "%s:6379" .)) -}}
{{- end -}}
redis://{{ join "," $hosts }}/{{ .Values.redis.database }}
{{- else if eq $store "s3" -}}
s3://{{ .Values.s3.bucket }}/{{ .Values.s3.prefix | default (printf "tenure/%s" .Release.Namespace) }}
{{- else if eq $store "gcs" -}}
gs://{{ .Values.gcs.bucket }}/{{ .Values.gcs.prefix | default (printf "tenure/%s" .Release.Namespace) }}
{{- else if eq $store "zookeeper" -}}
zookeeper://{{ join "," .Values.zookeeper.servers }}/{{ .Values.zookeeper.path | default (printf "tenure/%s" .Release.Namespace) }}
{{- else -}}
{{ $store }}
{{- end -}}
{{- end -}}

{{/* The values of the servers that keep the lease, as YAML; empty for other stores. */}}
{{- define "tenure.servers" -}}
{{- $kind := include "tenure.storeKind" . -}}
{{- if has $kind (list "consul" "etcd" "mongodb" "postgres" "redis" "s3" "zookeeper") -}}
{{- toYaml (get .Values $kind) -}}
{{- else if eq $kind "gs" -}}
{{- toYaml .Values.gcs -}}
{{- end -}}
{{- end -}}

{{/* The kind of store: the scheme of its URL. */}}
{{- define "tenure.storeKind" -}}
{{- regexFind "^[a-z0-9]+" (include "tenure.storeUrl" .) -}}
{{- end -}}

{{/* The name of the Lease, if the store is one. */}}
{{- define "tenure.leaseName" -}}
{{- include "tenure.storeUrl" . | trimPrefix "kubernetes:" | splitList "/" | last -}}
{{- end -}}

{{/* The namespace of the Lease. */}}
{{- define "tenure.leaseNamespace" -}}
{{- $parts := include "tenure.storeUrl" . | trimPrefix "kubernetes:" | splitList "/" -}}
{{- if eq (len $parts) 2 -}}{{ first $parts }}{{- else -}}{{ .Release.Namespace }}{{- end -}}
{{- end -}}

{{/* "true" if the sidecar uses the API server. */}}
{{- define "tenure.needsApi" -}}
{{- if or (eq (include "tenure.storeKind" .) "kubernetes") (has .Values.routing.mode (list "label" "endpointslice")) -}}
true
{{- end -}}
{{- end -}}
