{{/* The container, and the parts of the pod that it needs. */}}

{{/*
The sidecar: one container, for `initContainers` if `sidecar.native`, else for `containers`. As the
last init container, it does not compete while the other init containers run.
*/}}
{{- define "tenure.container" -}}
{{- include "tenure.guards" . -}}
name: tenure
image: {{ include "tenure.image" . | quote }}
{{- with .Values.sidecar.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- if .Values.sidecar.native }}
# Starts before the service and stops after it.
restartPolicy: Always
{{- end }}
args:
  {{- include "tenure.args" . | nindent 2 }}
env:
  {{- include "tenure.env" . | nindent 2 }}
  {{- with .Values.sidecar.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $secret := and (eq (include "tenure.storeKind" .) "azure") .Values.azure.credentialsSecret }}
{{- with include "tenure.servers" . | fromYaml }}{{ $secret = .credentialsSecret }}{{ end }}
{{- if or $secret .Values.sidecar.envFrom }}
envFrom:
  {{- if $secret }}
  - secretRef:
      name: {{ $secret | quote }}
  {{- end }}
  {{- with .Values.sidecar.envFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
ports:
  {{- include "tenure.ports" . | nindent 2 }}
{{- include "tenure.probes" . | nindent 0 }}
{{- if not .Values.sidecar.native }}
lifecycle:
  preStop:
    exec:
      # All containers of a pod receive SIGTERM at once. This one keeps running and leading for as long as
      # the service may need to stop; the wait ends early if the pod no longer leads.
      command: [/tenure, wait, --for=passive, {{ printf "--at-most=%vs" .Values.sidecar.serviceStopSeconds | quote }}]
{{- end }}
{{- with .Values.sidecar.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "tenure.securityContext" . | nindent 2 }}
# `kubectl describe` shows the errors of invalid settings.
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  {{- include "tenure.volumeMounts" . | nindent 2 }}
  {{- with .Values.sidecar.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The image, by digest if one is set, from global.imageRegistry if that is set. */}}
{{- define "tenure.image" -}}
{{- $image := .Values.sidecar.image -}}
{{- $repository := $image.repository -}}
{{- with (.Values.global | default dict).imageRegistry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (trimPrefix (include "tenure.registry" $repository) $repository | trimPrefix "/") -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The registry in the name of an image; empty if it names none. */}}
{{- define "tenure.registry" -}}
{{- regexFind "^(localhost|[^/]*[.:][^/]*)/" . | trimSuffix "/" -}}
{{- end -}}

{{/*
The identity of the pod, the address of the sidecar for `kubectl exec POD -c tenure -- /tenure …`, and the
settings, which these commands share with the sidecar.
*/}}
{{- define "tenure.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{ include "tenure.url" . }}
{{- if eq (include "tenure.storeKind" .) "azure" }}
{{- with .Values.azure.clientId }}
# The sidecar's identity, whichever the ServiceAccount is annotated with.
- name: AZURE_CLIENT_ID
  value: {{ . | quote }}
{{- end }}
{{- with .Values.azure.tenantId }}
- name: AZURE_TENANT_ID
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- if include "tenure.storeKeyVolume" . }}
- name: GOOGLE_APPLICATION_CREDENTIALS
  value: "/run/tenure-store-key/{{ .Values.gcs.keyName }}"
{{- end }}
{{- include "tenure.settingsEnv" . }}
{{- end -}}

{{/* The sidecar's URL within the pod, as a variable; for your containers too. Without TLS, also where others need it. */}}
{{- define "tenure.url" -}}
- name: TENURE_URL
  value: "http://127.0.0.1:{{ include "tenure.localPort" . }}"
{{- end -}}

{{/* The port of the status listener. */}}
{{- define "tenure.ports" -}}
- name: tenure
  containerPort: {{ include "tenure.port" . }}
  protocol: TCP
{{- end -}}

{{/*
The probes, with the port's number. Readiness is health, not leadership, except with routing.mode
probe. The service starts once the listener is up, even if the store is unreachable.

The startup probe is a command: a mesh with a classic sidecar lets its proxy answer HTTP probes, which
starts only after this probe has succeeded.
*/}}
{{- define "tenure.probes" -}}
{{- $isProbe := eq .Values.routing.mode "probe" -}}
startupProbe:
  {{- include "tenure.probe" (dict "context" . "exec" true "path" "/livez" "check" "--for=live") | nindent 2 }}
  {{- with .Values.sidecar.startupProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
readinessProbe:
  {{- include "tenure.probe" (dict "context" . "exec" .Values.sidecar.execProbes "path" ($isProbe | ternary "/leader" "/readyz") "check" ($isProbe | ternary "--for=active" "--for=ready")) | nindent 2 }}
  {{- with $isProbe | ternary .Values.sidecar.leaderProbe .Values.sidecar.readinessProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
livenessProbe:
  {{- include "tenure.probe" (dict "context" . "exec" .Values.sidecar.execProbes "path" "/livez" "check" "--for=live") | nindent 2 }}
  {{- with .Values.sidecar.livenessProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* How a probe asks: by a command, or by a request of the kubelet, which has no certificate to present. */}}
{{- define "tenure.probe" -}}
{{- if or .exec (include "tenure.asksClients" .context) -}}
exec: {command: [/tenure, check, {{ .check }}]}
{{- else -}}
httpGet: {path: {{ .path }}, port: {{ include "tenure.port" .context }}{{ if include "tenure.hasTls" .context }}, scheme: HTTPS{{ end }}}
{{- end -}}
{{- end -}}

{{/*
Stricter than the profile `restricted` requires; `sidecar.securityContext` is merged over it, and a null in
it removes a key. OpenShift assigns the user and rejects a fixed one.
*/}}
{{- define "tenure.securityContext" -}}
{{- $restricted := dict
  "allowPrivilegeEscalation" false
  "capabilities" (dict "drop" (list "ALL"))
  "privileged" false
  "readOnlyRootFilesystem" true
  "runAsGroup" 65532
  "runAsNonRoot" true
  "runAsUser" 65532
  "seccompProfile" (dict "type" "RuntimeDefault")
-}}
{{- if and .Capabilities (.Capabilities.APIVersions.Has "security.openshift.io/v1") -}}
{{- $restricted = omit $restricted "runAsGroup" "runAsUser" -}}
{{- end -}}
{{- range $key, $value := .Values.sidecar.securityContext -}}
{{- if kindIs "invalid" $value -}}
{{- $restricted = omit $restricted $key -}}
{{- else -}}
{{- $restricted = mergeOverwrite $restricted (dict $key (deepCopy $value)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $restricted -}}
{{- end -}}

{{/* The directory for admin socket and status files, the token for the API server, and the certificate. */}}
{{- define "tenure.volumeMounts" -}}
- name: tenure-run
  mountPath: /run/tenure
{{- include "tenure.tlsMount" . }}
{{- include "tenure.storeTlsMount" . }}
{{- if include "tenure.storeKeyVolume" . }}
- name: tenure-store-key
  mountPath: /run/tenure-store-key
  readOnly: true
{{- end }}
{{- if include "tenure.needsApi" . }}
- name: tenure-api
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tenure.tlsMount" -}}
{{- if .Values.tls.secretName }}
- name: tenure-tls
  # Not a part of it, so that the kubelet replaces the files when the Secret changes.
  mountPath: /run/tenure-tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tenure.storeTlsMount" -}}
{{- if include "tenure.storeTlsVolume" . }}
- name: tenure-store-tls
  mountPath: /run/tenure-store-tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "tenure.storeTlsVolume" -}}
{{- with (include "tenure.servers" . | fromYaml).tlsSecret }}
- name: tenure-store-tls
  secret: {secretName: {{ . | quote }}}
{{- end }}
{{- end -}}

{{- define "tenure.storeKeyVolume" -}}
{{- if and (eq (include "tenure.storeKind" .) "gs") .Values.gcs.keySecret }}
- name: tenure-store-key
  secret: {secretName: {{ .Values.gcs.keySecret | quote }}}
{{- end }}
{{- end -}}

{{- define "tenure.tlsVolume" -}}
{{- with .Values.tls.secretName }}
- name: tenure-tls
  secret: {secretName: {{ . | quote }}}
{{- end }}
{{- end -}}

{{/*
The volumes for these mounts. The token is projected into the sidecar alone: the pod has
automountServiceAccountToken: false, so that your container cannot use the sidecar's permissions.
*/}}
{{- define "tenure.volumes" -}}
- name: tenure-run
  # In memory, so that a full disk on the node does not affect status files.
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- include "tenure.tlsVolume" . }}
{{- include "tenure.storeTlsVolume" . }}
{{- include "tenure.storeKeyVolume" . }}
{{- if include "tenure.needsApi" . }}
- name: tenure-api
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end }}
{{- end -}}

{{/* Required labels of the pod. */}}
{{- define "tenure.podLabels" -}}
tenure.dev/election: {{ include "tenure.election" . | quote }}
{{- if include "tenure.workloadIdentity" . }}
azure.workload.identity/use: "true"
{{- end }}
{{- end -}}

{{/*
"true" if the sidecar signs in with AKS workload identity. The client id is azure.clientId, or that of the
ServiceAccount: one of your own, or that of a chart with the value serviceAccount.annotations.
*/}}
{{- define "tenure.workloadIdentity" -}}
{{- $annotated := dig "annotations" "azure.workload.identity/client-id" "" (.Values.serviceAccount | default dict) -}}
{{- if and (eq (include "tenure.storeKind" .) "azure") (or .Values.azure.clientId .Values.azure.workloadIdentity $annotated) -}}
true
{{- end -}}
{{- end -}}

{{/* Required annotations of the ServiceAccount. */}}
{{- define "tenure.serviceAccountAnnotations" -}}
{{- if and (eq (include "tenure.storeKind" .) "s3") .Values.s3.roleArn -}}
eks.amazonaws.com/role-arn: {{ .Values.s3.roleArn | quote }}
{{- end -}}
{{- if and (eq (include "tenure.storeKind" .) "gs") .Values.gcs.serviceAccount -}}
iam.gke.io/gcp-service-account: {{ .Values.gcs.serviceAccount | quote }}
{{- end -}}
{{- if and (eq (include "tenure.storeKind" .) "azure") .Values.azure.clientId -}}
azure.workload.identity/client-id: {{ .Values.azure.clientId | quote }}
{{- with .Values.azure.tenantId }}
azure.workload.identity/tenant-id: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The security context of the pod, for the profile `restricted`. */}}
{{- define "tenure.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}
