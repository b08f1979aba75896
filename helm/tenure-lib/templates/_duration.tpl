{{/* Durations as Tenure writes them: `15s`, `1m30s`, `1.5m`, `500ms`. */}}

{{/* Milliseconds of a duration. */}}
{{- define "tenure.milliseconds" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+([.][0-9]+)?(ms|h|m|s)" (toString .) -1 -}}
{{- $unit := get $units (regexFind "[a-z]+$" .) -}}
{{- $billionths := regexFind "[.][0-9]+" . | trimPrefix "." | printf "%s000000000" | trunc 9 -}}
{{- $sum = add $sum (mul (atoi (regexFind "^[0-9]+" .)) $unit) (div (mul (atoi $billionths) $unit) 1000000000) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/*
The longest time that the sidecar's shutdown takes, in whole seconds, rounded up, as `tenure doctor` computes
it: drain-timeout, two request-timeouts, one second, and for hooks hook-timeout plus one second, once if
only on-active is set, else twice.
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
The grace period of the pod. It covers first the shutdown of your service and then that of the sidecar, so it
is their sum.
*/}}
{{- define "tenure.terminationGracePeriodSeconds" -}}
{{- add .Values.sidecar.serviceStopSeconds (include "tenure.endingSeconds" .) -}}
{{- end -}}
