{{- define "kvgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for a StatefulSet behind it: a label with its name and a hash has 63 characters at most. */}}
{{- define "kvgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains (include "kvgate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kvgate.name" .) | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kvgate.selector" -}}
app.kubernetes.io/name: {{ include "kvgate.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kvgate.labels" -}}
{{ include "kvgate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kvgate
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* repository:tag, or repository@digest where one is given; no tag: the chart's own version */}}
{{- define "kvgate.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "kvgate.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kvgate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kvgate.secretName" -}}
{{- default (include "kvgate.fullname" .) .Values.secret.existingSecret -}}
{{- end -}}

{{- define "kvgate.hasSecret" -}}
{{- if or .Values.secret.existingSecret .Values.secret.data -}}true{{- end -}}
{{- end -}}

{{- define "kvgate.asksForKeys" -}}
{{- if or .Values.tenantKeys.enabled .Values.config.jwt .Values.config.keys_file -}}true{{- end -}}
{{- range .Values.config.tenants -}}{{- if .keys -}}true{{- end -}}{{- end -}}
{{- end -}}

{{- define "kvgate.valkeyHost" -}}
{{- printf "%s-valkey" (include "kvgate.fullname" .) -}}
{{- end -}}

{{- define "kvgate.engineName" -}}
{{- printf "%s-engine" (include "kvgate.fullname" .) -}}
{{- end -}}

{{/* Whether anything in the configuration is found through the Kubernetes API */}}
{{- define "kvgate.watchesEndpoints" -}}
{{- range (include "kvgate.config" . | fromYaml).engines -}}
{{- if kindIs "map" .replicas -}}{{- if .replicas.kubernetes -}}true{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* What `config` may say otherwise than the chart: probes, ports, policies and the time to end go by it. */}}
{{- define "kvgate.port" -}}
{{- int (include "kvgate.config" . | fromYaml).server.port -}}
{{- end -}}

{{- define "kvgate.adminPort" -}}
{{- int (include "kvgate.config" . | fromYaml).admin.port -}}
{{- end -}}

{{- define "kvgate.secondsToEnd" -}}
{{- $server := (include "kvgate.config" . | fromYaml).server -}}
{{- add .Values.drain.preStopSeconds (ceil $server.drain_delay_s) (ceil $server.grace_s) 30 -}}
{{- end -}}

{{/* A Role's name in a namespace: in one that is not the release's own, releases of others have theirs. */}}
{{- define "kvgate.roleName" -}}
{{- if eq .namespace .root.Release.Namespace -}}
{{- include "kvgate.fullname" .root -}}
{{- else -}}
{{- printf "%s-%s" (include "kvgate.fullname" .root) .root.Release.Namespace -}}
{{- end -}}
{{- end -}}

{{/* How pods come and go with the work, whoever scales them */}}
{{- define "kvgate.scaling" -}}
scaleDown:  # a pod that goes waits for its streams
  stabilizationWindowSeconds: 600
  policies: [{type: Pods, value: 1, periodSeconds: 120}]
scaleUp:
  stabilizationWindowSeconds: 30
{{- end -}}

{{/* What the file says: `config` of the values, and what only the chart knows. What `config` says counts. */}}
{{- define "kvgate.config" -}}
{{- $server := dict "host" "0.0.0.0" "port" 8000 "drain_delay_s" .Values.drain.delaySeconds "grace_s" .Values.drain.streamSeconds "workers" .Values.workers -}}
{{- $own := dict "server" $server -}}
{{- if .Values.admin.enabled -}}
{{- $_ := set $own "admin" (dict "host" "0.0.0.0" "port" 8001 "metrics" "here" "key" (dict "file" (printf "/etc/kvgate/secret/%s" .Values.admin.secretKey))) -}}
{{- end -}}
{{- if eq .Values.ledger.type "sqlite" -}}
{{- $_ := set $own "ledger" (dict "url" "/var/lib/kvgate/ledger/ledger.db" "keep" .Values.ledger.keep) -}}
{{- else if eq .Values.ledger.type "off" -}}
{{- $_ := set $own "ledger" (dict "url" "off") -}}
{{- else -}}
{{- $_ := set $own "ledger" (dict "keep" .Values.ledger.keep) -}}
{{- end -}}
{{- if .Values.valkey.enabled -}}
{{- $_ := set $own "redis" (dict "url" (printf "redis://%s:6379/0" (include "kvgate.valkeyHost" .)) "password" (dict "file" (printf "/etc/kvgate/secret/%s" .Values.valkey.passwordKey))) -}}
{{- end -}}
{{- if .Values.tenantKeys.enabled -}}
{{- $_ := set $own "keys_file" (printf "/etc/kvgate/secret/%s" .Values.tenantKeys.secretKey) -}}
{{- end -}}
{{- $merged := mergeOverwrite $own (deepCopy .Values.config) -}}
{{- if .Values.engine.enabled -}}
{{- $engine := mergeOverwrite (dict "name" "embedded" "kind" "kvgate" "key" (dict "file" (printf "/etc/kvgate/secret/%s" .Values.engine.secretKey)) "replicas" (dict "kubernetes" (dict "namespace" .Release.Namespace "service" (include "kvgate.engineName" .) "port" 8000))) (deepCopy .Values.engine.asEngine) -}}
{{- $_ := set $merged "engines" (concat (default list $merged.engines) (list $engine)) -}}
{{- end -}}
{{- toYaml $merged -}}
{{- end -}}
