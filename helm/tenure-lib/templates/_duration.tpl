{{/* Durations as Tenure writes them: `15s`, `1m30s`, `500ms`. */}}

{{/* Milliseconds of a duration. */}}
{{- define "tenure.milliseconds" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|h|m|s)" (toString .) -1 -}}
{{- $number := regexFind "^[0-9]+" . -}}
{{- $sum = add $sum (mul (int64 $number) (get $units (trimPrefix $number .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/*
How long the sidecar's own end takes at most, in whole seconds, rounded up; as `tenure doctor` counts
it: drain-timeout, two request-timeouts, a second, and for hooks hook-timeout and a second, once for
on-active alone, else twice.
*/}}
{{- define "tenure.endingSeconds" -}}
{{- $it := .Values.election -}}
{{- $hooks := ternary 1 0 (not (empty $it.onActive)) -}}
{{- if or $it.onPassive $it.onDrain $it.onLeaderChange -}}{{- $hooks = 2 -}}{{- end -}}
{{- $hook := add (include "tenure.milliseconds" $it.hookTimeout) 1000 -}}
{{- $sum := add (include "tenure.milliseconds" $it.drainTimeout) (mul 2 (include "tenure.milliseconds" $it.requestTimeout)) (mul $hooks $hook) 1000 -}}
{{- div (add $sum 999) 1000 -}}
{{- end -}}

{{/*
The grace period of the pod: first your service ends, then the sidecar. Both count from the same
beginning, so that it is the sum.
*/}}
{{- define "tenure.terminationGracePeriodSeconds" -}}
{{- add .Values.sidecar.serviceStopSeconds (include "tenure.endingSeconds" .) -}}
{{- end -}}
